#!/usr/bin/env python3
"""Makes the golden data of this folder with mlx-lm, the reference implementation.

    python3 tests/goldens/make.py                     everything
    python3 tests/goldens/make.py --only tiny         the tiny random models
    python3 tests/goldens/make.py --only tiny --name llama-f32 --name qwen2-f32
    python3 tests/goldens/make.py --only embeddings   embeddings of some tiny models
    python3 tests/goldens/make.py --only smollm2 --gguf FILE

The first run makes a virtual environment with the pinned packages in the cache
folder ($MLXCEL_CACHE, else the user's cache folder); every run then continues
inside it. Everything runs on the CPU.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
MLX = "0.32.4"
PACKAGES = [
    "mlx-lm==0.32.2",
    f"mlx=={MLX}" if sys.platform == "darwin" else f"mlx[cpu]=={MLX}",
    "tokenizers==0.23.3",
    "transformers==5.24.0",
    "numpy==2.4.6",
    "jinja2==3.1.6",
]


def cache_dir():
    """The cache folder that the whole project shares; same rule as tests/testenv."""
    if explicit := os.environ.get("MLXCEL_CACHE"):
        return Path(explicit)
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/mlxcel"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlxcel"


def enter_environment():
    """Makes the virtual environment if it is missing or stale, and restarts this script inside it."""
    folder = cache_dir() / "venv" / "goldens"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    python = folder / "bin" / "python"
    stamp = folder / "packages.txt"
    wanted = "\n".join(PACKAGES) + "\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making the virtual environment {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        stamp.write_text(wanted)
    # Compiled graphs would fuse the activation functions and round differently
    # from the plain operations; the variable is read when mlx is imported.
    environment = dict(
        os.environ, MLX_DISABLE_COMPILE="1", HF_HUB_OFFLINE="1", PYTHONDONTWRITEBYTECODE="1"
    )
    os.execve(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]], environment)


def main():
    """Reads the arguments and makes what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["tiny", "embeddings", "smollm2"], help="make one part only")
    parser.add_argument("--name", action="append", help="with --only tiny: this model only (repeatable)")
    parser.add_argument("--gguf", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf, default: in the cache folder")
    arguments = parser.parse_args()
    enter_environment()

    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    if arguments.only in (None, "tiny"):
        import tiny

        tiny.make_all(HERE / "tiny", arguments.name)
    if arguments.only in (None, "embeddings"):
        import embeddings

        embeddings.make(HERE / "tiny", HERE / "embeddings.json")
    if arguments.only in (None, "smollm2"):
        import smollm2

        models = cache_dir() / "models"
        gguf = arguments.gguf or models / "SmolLM2-135M-Instruct.Q4_1.gguf"
        smollm2.make(gguf, models / "SmolLM2-135M-Instruct-mlx", HERE / "smollm2.json")


if __name__ == "__main__":
    main()
