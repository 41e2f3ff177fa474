"""The real model: SmolLM2-135M-Instruct from its GGUF file, converted here and run by mlx-lm.

The conversion is written with numpy only and shares nothing with the Go code
that it checks. It loses nothing: GGUF's Q4_1 and Q8_0 blocks are MLX's affine
quantization in groups of 32. Scales, biases and norms become float32, so that
mlx-lm computes in float32.
"""

import json
import shutil
import time

import jinja2
import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import reference

F32, Q4_1, Q8_0 = 0, 3, 8
GROUP = 32


# --- GGUF ---------------------------------------------------------------------


class Gguf:
    """The metadata and the tensors of a GGUF file."""

    SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
    STRING, ARRAY = 8, 9

    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 0
        if bytes(self._take(4)) != b"GGUF" or self._scalar("<u4") != 3:
            raise SystemExit(f"{path} is not a GGUF file of version 3")
        tensors, fields = self._scalar("<u8"), self._scalar("<u8")
        self.metadata = {}
        for _ in range(fields):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("<u4"))
        infos = []
        for _ in range(tensors):
            name = self._string()
            shape = [self._scalar("<u8") for _ in range(self._scalar("<u4"))]
            infos.append((name, shape[::-1], self._scalar("<u4"), self._scalar("<u8")))
        alignment = self.metadata.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors = {name: (shape, kind, start + offset) for name, shape, kind, offset in infos}

    def blocks(self, name, kind, block_values, block_bytes):
        """The raw blocks of a quantized matrix: rows x blocks x bytes."""
        (rows, columns), found, start = self.tensors[name]
        if found != kind:
            raise SystemExit(f"{name} has type {found}, expected {kind}")
        per_row = columns // block_values
        return self.data[start : start + rows * per_row * block_bytes].reshape(rows, per_row, block_bytes)

    def vector(self, name):
        """A float32 vector."""
        (length,), kind, start = self.tensors[name]
        if kind != F32:
            raise SystemExit(f"{name} has type {kind}, expected {F32}")
        return self.data[start : start + 4 * length].view("<f4")

    def _take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def _scalar(self, dtype):
        return self._take(np.dtype(dtype).itemsize).view(dtype)[0].item()

    def _string(self):
        return bytes(self._take(self._scalar("<u8"))).decode("utf-8")

    def _value(self, kind):
        if kind == self.STRING:
            return self._string()
        if kind == self.ARRAY:
            of, count = self._scalar("<u4"), self._scalar("<u8")
            return [self._value(of) for _ in range(count)]
        return self._scalar(self.SCALARS[kind])


# --- weights --------------------------------------------------------------------


def half(raw):
    """The float16 number in the last two bytes' axis, as float32."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)


def q4_1(gguf, name):
    """Q4_1: each block is a float16 scale, a float16 minimum and 16 bytes whose
    low nibbles are the values 0 to 15 and whose high nibbles are 16 to 31."""
    raw = gguf.blocks(name, Q4_1, GROUP, 20)
    values = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1)
    pairs = values[..., 0::2] | values[..., 1::2] << 4  # MLX: consecutive values, low bits first
    return packed(pairs), half(raw[..., 0:2]), half(raw[..., 2:4])


def q8_0(gguf, name):
    """Q8_0: each block is a float16 scale and 32 signed bytes; MLX's are unsigned."""
    raw = gguf.blocks(name, Q8_0, GROUP, 34)
    scales = half(raw[..., 0:2])
    return packed(raw[..., 2:] ^ 128), scales, -128 * scales


def packed(values):
    """Rows x blocks x bytes as rows x 32-bit words."""
    return np.ascontiguousarray(values.reshape(len(values), -1)).view("<u4")


def dequantized(weight, scales, biases, bits):
    """What MLX makes of a packed matrix, computed with numpy."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    values = (weight[..., None] >> shifts & (2**bits - 1)).reshape(*scales.shape, GROUP)
    return (values * scales[..., None] + biases[..., None]).reshape(len(weight), -1)


def unpermuted(matrix, heads):
    """Undoes llama.cpp's order of the rows of q and k, which interleaves the halves of each head."""
    return matrix.reshape(heads, -1, 2, matrix.shape[-1]).swapaxes(1, 2).reshape(matrix.shape)


def config_of(metadata):
    """config.json from the GGUF metadata."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata["llama.rope.freq_base"],
        "max_position_embeddings": metadata["llama.context_length"],
        "vocab_size": metadata["llama.vocab_size"],
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "tie_word_embeddings": True,
        "quantization": {
            "group_size": GROUP,
            "bits": 4,
            "model.embed_tokens": {"group_size": GROUP, "bits": 8},
        },
    }


def convert(gguf, folder):
    """Writes the MLX model folder."""
    config = config_of(gguf.metadata)
    weights = {}

    def add(target, parts):
        for part, value in zip(("weight", "scales", "biases"), parts):
            weights[f"{target}.{part}"] = mx.array(value)

    add("model.embed_tokens", q8_0(gguf, "token_embd.weight"))
    add("model.norm", [gguf.vector("output_norm.weight")])
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    matrices = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    norms = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    for layer in range(config["num_hidden_layers"]):
        for source, target in matrices.items():
            parts = q4_1(gguf, f"blk.{layer}.{source}.weight")
            if source in heads:
                parts = [unpermuted(part, heads[source]) for part in parts]
            add(f"model.layers.{layer}.{target}", parts)
        for source, target in norms.items():
            add(f"model.layers.{layer}.{target}", [gguf.vector(f"blk.{layer}.{source}.weight")])

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=4) + "\n")
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})


def check(gguf, model):
    """Compares matrices as MLX reads them with the GGUF formulas applied directly to the file."""
    raw = gguf.blocks("blk.3.ffn_up.weight", Q4_1, GROUP, 20)
    nibbles = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1).astype(np.float32)
    expected = (nibbles * half(raw[..., 0:2])[..., None] + half(raw[..., 2:4])[..., None]).reshape(len(raw), -1)
    same(expected, model.layers[3].mlp.up_proj)

    raw = gguf.blocks("token_embd.weight", Q8_0, GROUP, 34)[:1000]
    expected = (raw[..., 2:].view(np.int8) * half(raw[..., 0:2])[..., None]).reshape(len(raw), -1)
    same(expected, model.model.embed_tokens, rows=1000)

    # llama.cpp row 2i is row i of the head's first half, row 2i+1 is row i of its second half.
    straight = dequantized(*q4_1(gguf, "blk.3.attn_k.weight"), bits=4)
    size = model.layers[3].self_attn.head_dim
    order = [h * size + half_ + 2 * i for h in range(len(straight) // size) for half_ in (0, 1) for i in range(size // 2)]
    same(straight[order], model.layers[3].self_attn.k_proj)


def same(expected, layer, rows=None):
    """Fails unless the quantized layer's matrix equals the expected one within float32 rounding."""
    parts = [layer[name][:rows] for name in ("weight", "scales", "biases")]
    actual = np.array(mx.dequantize(*parts, group_size=layer.group_size, bits=layer.bits))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


# --- tokenizer --------------------------------------------------------------------


def tokenizer_of(metadata):
    """The tokenizer, built with the tokenizers library from the GGUF's vocabulary and merges."""
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = metadata["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, kinds) if kind == control]
    )
    return tokenizer


def chat_template_of(metadata):
    """The chat template, with the whitespace options that transformers renders templates with."""
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(metadata["tokenizer.chat_template"])


# --- prompts ----------------------------------------------------------------------


def station_report(lines):
    """A long plain text: one line a station, no line like another."""
    winds = ["north", "east", "south", "west"]
    rows = [
        f"Station {n} measured {7 * n % 31}.{3 * n % 10} degrees at {n % 24:02d}:{11 * n % 60:02d}, "
        f"wind from the {winds[n * n % 4]}."
        for n in range(1, lines + 1)
    ]
    return "Weather report.\n" + "\n".join(rows) + "\nIn short, the weather was"


def user(text):
    """A chat of one user message."""
    return [{"role": "user", "content": text}]


# The closest call that a prompt may contain: float32 rounding over 30 layers
# moves logits by less than a tenth of it.
LEAST_MARGIN = 4e-3

# name, messages or text, tokens to generate
PROMPTS = [
    ("one-token", "The", 32),
    ("completion", "Once upon a time, in a small village by the sea,", 48),
    ("completion-newlines", "Shopping list:\n\n- bread\n- milk\n-", 32),
    ("code-python", 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n <', 48),
    ("code-go", "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfor i := 0; i < 5; i++ {\n\t\tfmt", 40),
    ("french", "La tour Eiffel est située à Paris. Elle a été construite en", 40),
    ("chinese", "北京是中华人民共和国的首都。长城是", 32),
    ("emoji", "I love cooking 🍕🍜 and dancing 💃🏽! My family 👨‍👩‍👧 says", 32),
    ("numbers", "1, 2, 4, 8, 16, 32, 64, 128,", 32),
    ("chat-default-system", user("What is the capital of France?"), 40),
    ("chat-empty-system", [{"role": "system", "content": ""}, *user("Name three colours.")], 40),
    (
        "chat-system",
        [{"role": "system", "content": "You answer in one short sentence."}, *user("Why is the sky blue?")],
        24,
    ),
    (
        "chat-multi-turn",
        [
            *user("Hi! My name is Zoë and I have two cats."),
            {"role": "assistant", "content": "Nice to meet you, Zoë! What are your cats called?"},
            *user("Miso and Tofu. Write one sentence about them."),
        ],
        48,
    ),
    ("chat-code", user("Write a Python function that reverses a string."), 48),
    ("chat-special-text", user("Translate to English: « Où est la bibliothèque ? » <|not_special|>"), 24),
    ("medium-150", station_report(6), 24),
    ("long-700", station_report(28), 12),
]


def make(gguf_path, folder, target):
    """Converts the model into folder, runs every prompt and writes target."""
    if not gguf_path.exists():
        raise SystemExit(f"{gguf_path} is missing; name the file with --gguf")
    gguf = Gguf(gguf_path)
    convert(gguf, folder)
    model, config = load_model(folder)
    check(gguf, model)
    tokenizer, template = tokenizer_of(gguf.metadata), chat_template_of(gguf.metadata)
    tokenizer.save(str(folder / "tokenizer.json"))

    golden = reference.header("SmolLM2-135M-Instruct.Q4_1", "f32")
    golden["cases"] = []
    for name, prompt, count in PROMPTS:
        started = time.monotonic()
        if isinstance(prompt, str):
            case, text = {"name": name, "text": prompt}, prompt
        else:
            text = template.render(messages=prompt, add_generation_prompt=True)
            case = {"name": name, "messages": prompt}
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        result = reference.greedy(model, ids, count, reference.telling_logits)
        if min(result["margins"]) < LEAST_MARGIN:
            raise SystemExit(f"{name}: margin {min(result['margins'])}; take another prompt or fewer tokens")
        end = config["eos_token_id"]
        stop = result["ids"].index(end) if end in result["ids"] else -1
        output = tokenizer.decode(result["ids"], skip_special_tokens=True)
        golden["cases"].append({**case, "prompt": text, **result, "eos_at": stop, "output": output})
        print(
            f"{name:20} {len(ids):4} + {count} tokens  {time.monotonic() - started:5.1f} s"
            f"  margin min {min(result['margins']):.4f}  eos at {stop}  {output[:60]!r}",
            flush=True,
        )
    reference.write_json(target, golden)
