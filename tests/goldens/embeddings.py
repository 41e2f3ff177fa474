"""Embeddings of tiny models: mean and last token of the last hidden states, normalized, as sentence-transformers defines them."""

import json

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

import reference

MODELS = ["llama-f32", "qwen2-f32", "qwen3-f32-tied"]


def make(tiny, file):
    """Writes the embeddings of the prompts of MODELS, whose folders lie in tiny, to file."""
    models = {}
    for name in MODELS:
        model, _ = load_model(tiny / name)
        golden = json.loads((tiny / name / "golden.json").read_text())
        models[name] = [embed(model, case["prompt_ids"]) for case in golden["cases"]]
    versions = {key: value for key, value in reference.header("", "").items() if value}
    reference.write_json(file, {**versions, "models": models})


def embed(model, ids):
    """One prompt: its ids, and both vectors."""
    states = np.array(model.model(mx.array([ids]))[0].astype(mx.float32)).astype(np.float64)
    mean, last = states.mean(axis=0), states[-1]
    return {"prompt_ids": ids, "mean": normalized(mean), "last": normalized(last)}


def normalized(vector):
    """A vector of length 1, as float32."""
    return list((vector / np.linalg.norm(vector)).astype(np.float32))
