"""Runs a model with mlx-lm and records what the Go tests compare with."""

import importlib.metadata
import json

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache


def greedy(model, prompt_ids, count, keep):
    """Generates count tokens greedily, without stopping at end tokens.

    The prompt goes in as one prefill, then one token per step. keep maps the
    logits of a step (float32 vector) to the token ids whose logits are recorded
    for the first and the last step. Returns the fields of one golden case.
    """
    cache = make_prompt_cache(model)
    tokens, ids, margins, recorded = prompt_ids, [], [], {}
    for step in range(count):
        output = model(mx.array([tokens]), cache=cache)[0, -1]
        logits = np.array(output.astype(mx.float32))
        best, second = np.sort(logits)[::-1][:2]
        tokens = [int(logits.argmax())]
        ids += tokens
        margins.append(best - second)
        for name, at in (("first", 0), ("last", count - 1)):
            if step == at:
                chosen = keep(logits)
                recorded[name] = {"ids": [int(i) for i in chosen], "logits": list(logits[chosen])}
    return {"prompt_ids": prompt_ids, "ids": ids, "margins": margins, **recorded}


def all_logits(logits):
    """Keeps every logit: for models with a tiny vocabulary."""
    return np.arange(len(logits))


def telling_logits(logits):
    """Keeps the 32 largest logits and 32 evenly spread ones: for models with a real vocabulary."""
    largest = np.argsort(-logits, kind="stable")[:32]
    spread = np.arange(32) * len(logits) // 32
    return np.concatenate([largest, spread])


def widen(model):
    """Casts all floating-point tensors, also scales and biases, to float32; packed weights stay."""
    model.update(
        tree_map(
            lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a,
            model.parameters(),
        )
    )
    return model


def header(model, dtype):
    """The fields that begin every golden file."""
    return {
        "mlx_lm": importlib.metadata.version("mlx-lm"),
        "mlx": importlib.metadata.version("mlx"),
        "model": model,
        "dtype": dtype,
    }


def write_json(path, value):
    """Writes JSON with one line per innermost list, so that diffs stay readable.

    Floats are float32 values in their shortest exact decimal form.
    """
    path.write_text(_text(value, "") + "\n", encoding="utf-8")


def _text(value, indent):
    inner = indent + " "
    if isinstance(value, dict):
        fields = [f"{inner}{json.dumps(k)}: {_text(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return "[\n" + ",\n".join(inner + _text(v, inner) for v in value) + f"\n{indent}]"
    if isinstance(value, list):
        return "[" + ",".join(_text(v, inner) for v in value) + "]"
    if isinstance(value, np.floating):
        return str(np.float32(value))
    return json.dumps(value, ensure_ascii=False)
