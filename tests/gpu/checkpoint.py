"""Writes a checkpoint of Qwen3-8B's shape, in 4 bits with groups of 64, whose weights are random: 4.6 GB to load.

usage: checkpoint.py FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np

HIDDEN, LAYERS, INTERMEDIATE, HEADS, KV_HEADS, DIM, VOCABULARY, GROUP = 4096, 36, 12288, 32, 8, 128, 151936, 64


def tensors():
    def matrix(name, rows, columns):
        yield name + ".weight", "U32", (rows, columns // 8)
        yield name + ".scales", "BF16", (rows, columns // GROUP)
        yield name + ".biases", "BF16", (rows, columns // GROUP)

    yield from matrix("model.embed_tokens", VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for norm, size in (("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN), ("self_attn.q_norm", DIM), ("self_attn.k_norm", DIM)):
            yield layer + norm + ".weight", "BF16", (size,)
        yield from matrix(layer + "self_attn.q_proj", HEADS * DIM, HIDDEN)
        yield from matrix(layer + "self_attn.k_proj", KV_HEADS * DIM, HIDDEN)
        yield from matrix(layer + "self_attn.v_proj", KV_HEADS * DIM, HIDDEN)
        yield from matrix(layer + "self_attn.o_proj", HIDDEN, HEADS * DIM)
        yield from matrix(layer + "mlp.gate_proj", INTERMEDIATE, HIDDEN)
        yield from matrix(layer + "mlp.up_proj", INTERMEDIATE, HIDDEN)
        yield from matrix(layer + "mlp.down_proj", HIDDEN, INTERMEDIATE)
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield from matrix("lm_head", VOCABULARY, HIDDEN)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    header, at, order = {}, 0, list(tensors())
    for name, dtype, shape in order:
        size = int(np.prod(shape)) * (4 if dtype == "U32" else 2)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    random = np.random.default_rng(1)
    noise = random.integers(0, 2**32, 1 << 24, dtype=np.uint32)
    small = (random.integers(0x3B80, 0x3C00, 1 << 24, dtype=np.uint16))  # 0.004 to 0.008 in bf16
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, dtype, shape in order:
            left, source = int(np.prod(shape)), noise if dtype == "U32" else small
            while left > 0:
                n = min(left, len(source))
                file.write(source[:n].tobytes())
                left -= n
    (folder / "config.json").write_text(json.dumps({
        "model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM, "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40960, "tie_word_embeddings": False,
        "quantization": {"group_size": GROUP, "bits": 4}}))


main()
