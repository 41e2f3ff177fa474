"""The peer of `mlxcel bench --random`: mlx-lm on random weights of Qwen3's shapes in 4 bits, groups of 64.

usage: peer.py SHAPE... PROMPT_TOKENS NEW_TOKENS ROUNDS

Prints a line a shape: medians of the rounds after the first, in which kernels are compiled.
"""

import statistics
import sys
import time

import mlx.core as mx
import mlx.nn as nn
import mlx.utils
from mlx_lm.generate import generate_step
from mlx_lm.models import qwen3

SHAPES = {  # hidden, layers, heads, KV heads, intermediate, tied
    "0.6b": (1024, 28, 16, 8, 3072, True),
    "4b": (2560, 36, 32, 8, 9728, True),
    "8b": (4096, 36, 32, 8, 12288, False),
}


def measure(shape, prompt_tokens, tokens, rounds):
    hidden, layers, heads, kv_heads, intermediate, tied = SHAPES[shape]
    model = qwen3.Model(qwen3.ModelArgs(
        model_type="qwen3", hidden_size=hidden, num_hidden_layers=layers, intermediate_size=intermediate,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=128, rms_norm_eps=1e-6, rope_theta=1e6,
        vocab_size=151936, max_position_embeddings=40960, tie_word_embeddings=tied))
    model.update(mlx.utils.tree_map(lambda p: p.astype(mx.bfloat16), model.parameters()))
    nn.quantize(model, 64, 4)
    mx.eval(model.parameters())
    model.eval()
    prefill, decode = [], []
    for round in range(rounds + 1):
        prompt = mx.random.randint(0, 1000, (prompt_tokens,))
        mx.eval(prompt)
        start, first, n = time.perf_counter(), None, 0
        for _ in generate_step(prompt, model, max_tokens=tokens):
            first = first or time.perf_counter()
            n += 1
        end = time.perf_counter()
        if round == 0:
            cold = first - start
            continue
        prefill.append(prompt_tokens / (first - start))
        decode.append((n - 1) / (end - first))
    print(f"mlx-lm {shape}: {statistics.median(prefill):.0f} tok/s prompt, {statistics.median(decode):.1f} tok/s decode "
          f"({min(decode):.0f} to {max(decode):.0f}), first token ever after {cold:.1f} s", flush=True)


*shapes, prompt_tokens, tokens, rounds = sys.argv[1:]
for shape in shapes:
    measure(shape, int(prompt_tokens), int(tokens), int(rounds))
