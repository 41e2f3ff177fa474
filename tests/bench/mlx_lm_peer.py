"""The peer of `go run ./dist bench`: mlx-lm on the model that mlxcel runs, once, with figures as JSON on stdout.

usage: mlx_lm_peer.py GGUF FOLDER PROMPT_TOKENS NEW_TOKENS

FOLDER receives the model in mlx-lm's form, converted as for the goldens, if it is not there yet. It is in float32:
in half types mlx-lm is ten and more times slower on an x86 processor.
"""

import json
import resource
import sys
import time
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))
import smollm2  # noqa: E402  (found by the line above)


def main():
    gguf, folder = Path(sys.argv[1]), Path(sys.argv[2])
    prompt_tokens, new_tokens = int(sys.argv[3]), int(sys.argv[4])
    mx.set_default_device(mx.cpu)
    if not (folder / "config.json").exists():
        smollm2.convert(smollm2.Gguf(gguf), folder)
    model, _ = load_model(folder)
    # The ids do not matter for the time; they are the same in every run.
    prompt = mx.array([(7 * i * i + 31 * i + 11) % 40000 for i in range(prompt_tokens)])
    start = time.perf_counter()
    first = None
    for token, _ in generate_step(prompt, model, max_tokens=new_tokens):
        if first is None:
            first = time.perf_counter()
    end = time.perf_counter()
    print(json.dumps({
        "prompt_tokens_per_s": prompt_tokens / (first - start),
        "decode_tokens_per_s": (new_tokens - 1) / (end - first),
        "process_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
