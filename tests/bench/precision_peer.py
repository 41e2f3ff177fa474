"""How far mlx-lm's own activation type is from f32: the yardstick for the native library's precision.

usage: precision_peer.py GGUF FOLDER TEXT_FILE TOKENS

Runs the model that mlxcel runs on the first TOKENS tokens of a text, with scales and norms (and so activations) in
bfloat16 and in float32, and prints the mean KL divergence of the one from the other and the largest difference of a
logit, as JSON. On an x86 processor bfloat16 takes seconds a token: keep TOKENS small.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.utils import load_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))
import smollm2  # noqa: E402  (found by the line above)


def logits(model, ids):
    """Every row of logits for a text, in float32."""
    out = model(mx.array(ids)[None])[0].astype(mx.float32)
    mx.eval(out)
    return out


def main():
    gguf, folder = smollm2.Gguf(Path(sys.argv[1])), Path(sys.argv[2])
    mx.set_default_device(mx.cpu)
    if not (folder / "config.json").exists():
        smollm2.convert(gguf, folder)
    text = Path(sys.argv[3]).read_text()
    ids = smollm2.tokenizer_of(gguf.metadata).encode(text, add_special_tokens=False).ids[: int(sys.argv[4])]
    model, _ = load_model(folder)
    exact = logits(model, ids)
    model.update(tree_map(lambda a: a.astype(mx.bfloat16) if a.dtype == mx.float32 else a, model.parameters()))
    rounded = logits(model, ids)
    p = exact - mx.logsumexp(exact, axis=-1, keepdims=True)
    q = rounded - mx.logsumexp(rounded, axis=-1, keepdims=True)
    print(json.dumps({
        "tokens": len(ids),
        "kl": mx.mean(mx.sum(mx.exp(p) * (p - q), axis=-1)).item(),
        "difference": mx.max(mx.abs(exact - rounded)).item(),
    }))


if __name__ == "__main__":
    main()
