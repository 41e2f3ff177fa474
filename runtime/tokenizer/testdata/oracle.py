"""Runs the tokenizers package for the Go tests.

Standard input holds a JSON list of jobs, standard output gets a list of
answers. A job either encodes and decodes:

    {"file": path | "json": text of a tokenizer.json,
     "texts": [...], "ids": [[...], ...]}
    -> {"error": text} or
       {"plain": ids of texts, "special": ids with special tokens,
        "decoded": texts of ids, "skipped": the same without special tokens}

or reads the vocabulary of a GGUF file:

    {"gguf": path} -> {key: value} of its metadata under tokenizer.ggml.
"""

import json
import struct
import sys

GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
GGUF_STRING, GGUF_ARRAY = 8, 9


def encode_and_decode(job):
    from tokenizers import Tokenizer

    try:
        t = Tokenizer.from_file(job["file"]) if "file" in job else Tokenizer.from_str(job["json"])
    except Exception as e:  # the package raises plain Exception
        return {"error": str(e)}
    texts, ids = job.get("texts") or [], job.get("ids") or []
    return {
        "plain": [t.encode(x, add_special_tokens=False).ids for x in texts],
        "special": [t.encode(x, add_special_tokens=True).ids for x in texts],
        "decoded": [t.decode(x, skip_special_tokens=False) for x in ids],
        "skipped": [t.decode(x, skip_special_tokens=True) for x in ids],
    }


def gguf_metadata(path):
    with open(path, "rb") as f:

        def scalar(form):
            return struct.unpack("<" + form, f.read(struct.calcsize("<" + form)))[0]

        def text():
            return f.read(scalar("Q")).decode()

        def value(kind):
            if kind == GGUF_STRING:
                return text()
            if kind == GGUF_ARRAY:
                kind, n = scalar("I"), scalar("Q")
                return [value(kind) for _ in range(n)]
            return scalar(GGUF_SCALARS[kind])

        assert f.read(4) == b"GGUF"
        scalar("I")  # version
        scalar("Q")  # number of tensors
        n = scalar("Q")
        return {text(): value(scalar("I")) for _ in range(n)}


def vocabulary(path):
    prefix = "tokenizer.ggml."
    return {k[len(prefix):]: v for k, v in gguf_metadata(path).items() if k.startswith(prefix)}


jobs = json.load(sys.stdin.buffer)
answers = [vocabulary(j["gguf"]) if "gguf" in j else encode_and_decode(j) for j in jobs]
json.dump(answers, sys.stdout)
