"""Tiny random models: every family, dtype, quantization and option that the Go runtime supports.

Each becomes a model folder as users have it (config.json and safetensors, no
tokenizer) plus golden.json. MODELS says what each one is there for.
"""

import contextlib
import importlib
import io
import json
import shutil
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model

import reference

DTYPES = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}
TORCH_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
PROMPT_LENGTHS = [1, 5, 17, 40]
GENERATED = 16

# A seed is taken when the float32 run has no near tie and does not just repeat
# one token: then a correct implementation in float32 must give the same ids.
LEAST_MARGIN = 4e-3
LEAST_DISTINCT = 5

VOCABULARY = 96
BASE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What config.json of a family's models usually says, on top of BASE.
FAMILIES = {
    "llama": {"architectures": ["LlamaForCausalLM"], "rope_theta": 10000.0, "tie_word_embeddings": False},
    "mistral": {"architectures": ["MistralForCausalLM"], "rope_theta": 10000.0, "tie_word_embeddings": False},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "rope_theta": 1000000.0, "tie_word_embeddings": False},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "head_dim": 32,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
    },
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-6,
    },
}
# The module of mlx_lm.models that holds the family's classes.
MODULES = {"mistral": "llama"}


@dataclass
class Tiny:
    """One tiny model.

    config overrides BASE and FAMILIES; None leaves the key out of config.json.
    quantize holds group_size, bits and mode of most tensors; overrides gives
    single modules other ones (False = not quantized). unnamed lists overridden
    modules that config.json does not name, so that a reader must infer them
    from the tensors' shapes.
    """

    name: str
    family: str
    dtype: str
    config: dict = field(default_factory=dict)
    quantize: dict | None = None
    overrides: dict = field(default_factory=dict)
    unnamed: tuple = ()
    shards: int = 1
    unstacked: bool = False


def affine(bits, group_size):
    """The usual quantization: one scale and one bias per group."""
    return {"group_size": group_size, "bits": bits, "mode": "affine"}


MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
MXFP8 = {"group_size": 32, "bits": 8, "mode": "mxfp8"}
NVFP4 = {"group_size": 16, "bits": 4, "mode": "nvfp4"}
# A smaller model for options that do not depend on the sizes: 48 = 3 heads of 16.
SMALL = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 3, "num_key_value_heads": 1}
SMALL_MHA = {**SMALL, "num_key_value_heads": 3}
MULTIPLES_OF_64 = {"intermediate_size": 128}
MULTIPLES_OF_128 = {"hidden_size": 128, "intermediate_size": 128, "num_key_value_heads": 1}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
YARN_ALL_KEYS = {
    "type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 24,
    "beta_fast": 8,
    "beta_slow": 0.5,
    "mscale": 0.707,
    "mscale_all_dim": 0.3,
}
SLIDING_AROUND_FULL = {
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 8,
}

MODELS = [
    # llama: heads, dtypes, head sizes, tied and untied
    Tiny("llama-f32", "llama", "f32"),
    Tiny("llama-bf16-mha-tied", "llama", "bf16", {**SMALL_MHA, "tie_word_embeddings": True}),
    Tiny("llama-f16-mqa", "llama", "f16", SMALL),
    Tiny("llama-bf16-headdim", "llama", "bf16", {**SMALL, "head_dim": 24}),
    Tiny("llama-f16-bias", "llama", "f16", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    Tiny(
        "llama-bf16-defaults",
        "llama",
        "bf16",
        {
            **SMALL,
            "num_key_value_heads": None,
            "rope_theta": None,
            "tie_word_embeddings": None,
            "max_position_embeddings": None,
        },
    ),
    Tiny("llama-f16-sharded", "llama", "f16", {**SMALL_MHA, "num_hidden_layers": 3}, shards=3),
    # llama: positions and windows
    Tiny("llama-bf16-rope-linear", "llama", "bf16", {**SMALL_MHA, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    Tiny("llama-bf16-rope-llama3", "llama", "bf16", {"rope_scaling": LLAMA3, "rope_theta": 500.0}),
    Tiny("llama-bf16-rope-yarn", "llama", "bf16", {"rope_scaling": YARN, "rope_theta": 1000.0}),
    Tiny("llama-f16-rope-yarn-mscale", "llama", "f16", {"rope_scaling": YARN_ALL_KEYS, "rope_theta": 500.0}),
    Tiny("llama-bf16-rope-traditional", "llama", "bf16", {**SMALL_MHA, "rope_traditional": True}),
    Tiny(
        "llama-f32-sliding",
        "llama",
        "f32",
        {**SMALL, "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8},
    ),
    # llama: quantization
    Tiny("llama-f16-q2-g32", "llama", "f16", quantize=affine(2, 32)),
    Tiny("llama-bf16-q3-g64", "llama", "bf16", MULTIPLES_OF_64, affine(3, 64)),
    Tiny("llama-bf16-q4-g64", "llama", "bf16", MULTIPLES_OF_64, affine(4, 64)),
    Tiny("llama-f32-q4-g32-tied", "llama", "f32", {"tie_word_embeddings": True}, affine(4, 32)),
    Tiny("llama-bf16-q4-g128", "llama", "bf16", MULTIPLES_OF_128, affine(4, 128)),
    Tiny("llama-bf16-q5-g64", "llama", "bf16", MULTIPLES_OF_64, affine(5, 64)),
    Tiny("llama-bf16-q6-g128", "llama", "bf16", MULTIPLES_OF_128, affine(6, 128)),
    Tiny("llama-f16-q8-g32", "llama", "f16", quantize=affine(8, 32)),
    Tiny("llama-bf16-mxfp8", "llama", "bf16", quantize=MXFP8),
    Tiny(
        "llama-bf16-mixed",
        "llama",
        "bf16",
        {**MULTIPLES_OF_64, "attention_bias": True},
        affine(4, 64),
        {
            "lm_head": affine(8, 32),
            "model.embed_tokens": affine(6, 64),
            "model.layers.0.self_attn.v_proj": False,
            "model.layers.0.mlp.down_proj": affine(2, 32),
            "model.layers.1.mlp.up_proj": MXFP8,
            "model.layers.1.self_attn.o_proj": NVFP4,
        },
    ),
    Tiny(
        "llama-f16-inferred",
        "llama",
        "f16",
        MULTIPLES_OF_64,
        affine(4, 64),
        {
            "lm_head": affine(8, 32),
            "model.embed_tokens": False,
            "model.layers.1.mlp.down_proj": affine(5, 128),
        },
        unnamed=("lm_head", "model.embed_tokens", "model.layers.1.mlp.down_proj"),
    ),
    # mistral
    Tiny("mistral-f16", "mistral", "f16", {**SMALL_MHA, "sliding_window": 8}),
    Tiny("mistral-bf16-sliding", "mistral", "bf16", {**SMALL, **SLIDING_AROUND_FULL, "head_dim": 24}),
    Tiny("mistral-bf16-q3-g128", "mistral", "bf16", MULTIPLES_OF_128, affine(3, 128)),
    Tiny("mistral-bf16-mxfp4", "mistral", "bf16", quantize=MXFP4),
    # qwen2
    Tiny("qwen2-f32", "qwen2", "f32", {"hidden_size": 48}),
    Tiny(
        "qwen2-bf16-defaults",
        "qwen2",
        "bf16",
        {"rope_theta": None, "tie_word_embeddings": None, "max_position_embeddings": None, "num_key_value_heads": 1},
    ),
    Tiny("qwen2-bf16-q4-g64-yarn", "qwen2", "bf16", {**MULTIPLES_OF_64, "rope_scaling": YARN}, affine(4, 64)),
    Tiny("qwen2-f16-q8-g64", "qwen2", "f16", {**MULTIPLES_OF_64, "num_key_value_heads": 4}, affine(8, 64)),
    # qwen3
    Tiny("qwen3-f32-tied", "qwen3", "f32", {**SMALL_MHA, "tie_word_embeddings": True, "head_dim": 24}),
    Tiny("qwen3-f16", "qwen3", "f16", {"head_dim": 20}),
    Tiny(
        "qwen3-bf16-rope-parameters",
        "qwen3",
        "bf16",
        {"head_dim": 24, "rope_theta": None, "rope_parameters": {**YARN, "rope_theta": 1000.0}},
    ),
    Tiny("qwen3-bf16-q6-g32-tied", "qwen3", "bf16", {"tie_word_embeddings": True}, affine(6, 32)),
    Tiny("qwen3-bf16-nvfp4", "qwen3", "bf16", {"num_key_value_heads": 1}, NVFP4),
    # qwen3_moe
    Tiny(
        "qwen3-moe-f32",
        "qwen3_moe",
        "f32",
        {"hidden_size": 48, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 24},
    ),
    Tiny(
        "qwen3-moe-bf16-sparse-step",
        "qwen3_moe",
        "bf16",
        {
            "hidden_size": 48,
            "num_hidden_layers": 3,
            "num_experts": 6,
            "decoder_sparse_step": 2,
            "norm_topk_prob": False,
        },
    ),
    Tiny("qwen3-moe-f16-unstacked", "qwen3_moe", "f16", {**SMALL, "mlp_only_layers": [0]}, unstacked=True),
    Tiny(
        "qwen3-moe-bf16-q4-g64",
        "qwen3_moe",
        "bf16",
        {"num_experts": 4, "moe_intermediate_size": 64, "intermediate_size": 128, "norm_topk_prob": False},
        affine(4, 64),
    ),
    Tiny("qwen3-moe-bf16-mxfp4-tied", "qwen3_moe", "bf16", {"tie_word_embeddings": True}, MXFP4),
]


def make_all(folder, names=None):
    """Writes the named models, or all of them, into folder/<name>/ and removes folders nothing describes."""
    known = {tiny.name for tiny in MODELS}
    if unknown := set(names or []) - known:
        raise SystemExit(f"no tiny model is called {sorted(unknown)}")
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.name not in known:
            shutil.rmtree(old)
    for tiny in MODELS:
        if not names or tiny.name in names:
            make(tiny, folder / tiny.name)


def make(tiny, folder):
    """Writes one model folder with its golden.json, with the first seed whose float32 run is clear-cut."""
    prompts = random_prompts(tiny.name)
    for seed in range(200):
        write_model(tiny, seed, folder)
        exact = run(reference.widen(load_model(folder)[0]), prompts)
        least, distinct = margins_and_variety(exact)
        if least >= LEAST_MARGIN and distinct >= LEAST_DISTINCT:
            break
    else:
        raise SystemExit(f"{tiny.name}: no seed gives clear-cut logits; change the scales of random_tensor")

    golden = reference.header(tiny.name, tiny.dtype)
    if tiny.dtype == "f32":
        golden["cases"] = exact
    else:
        golden["cases"] = run(load_model(folder)[0], prompts) if runs_natively(tiny) else []
        golden["f32"] = {"cases": exact}
    reference.write_json(folder / "golden.json", golden)
    report(tiny, seed, folder, exact, golden["cases"])


def full_config(tiny):
    """The model's config.json, before quantization."""
    config = {"model_type": tiny.family, **BASE, **FAMILIES[tiny.family], "torch_dtype": TORCH_DTYPES[tiny.dtype]}
    config.update(tiny.config)
    return {key: value for key, value in config.items() if value is not None}


def write_model(tiny, seed, folder):
    """Builds the model with mlx-lm's own class, fills it with random numbers, quantizes and saves it."""
    config = full_config(tiny)
    classes = importlib.import_module(f"mlx_lm.models.{MODULES.get(tiny.family, tiny.family)}")
    model = classes.Model(classes.ModelArgs.from_dict(config))
    tied = not hasattr(model, "lm_head")
    # RandomState's streams never change between numpy versions.
    random = np.random.RandomState(seed)
    model.load_weights(
        [
            (name, mx.array(random_tensor(name, old.shape, tied, random)).astype(DTYPES[tiny.dtype]))
            for name, old in sorted(tree_flatten(model.parameters()))
        ]
    )
    if tiny.quantize:
        model, config = quantize(tiny, model, config)

    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=4) + "\n")
    save_weights(dict(tree_flatten(model.parameters())), folder, tiny)


def random_tensor(name, shape, tied, random):
    """Random numbers in a scale that keeps every part of the model relevant.

    Logits have a standard deviation of 2 to 2.5, the layers' outputs outweigh
    the embedding they are added to, and attention is neither flat nor one-hot.
    """
    if name.endswith("norm.weight"):
        return random.uniform(0.8, 1.2, shape)
    if name.endswith(".bias"):
        return random.normal(0, 0.3, shape)
    if name == "model.embed_tokens.weight":
        return random.normal(0, 2.0 / np.sqrt(shape[-1]) if tied else 0.5, shape)
    gain = {"lm_head": 2.5, "gate": 2.0, "q_proj": 1.5, "k_proj": 1.5}.get(name.split(".")[-2], 1.4)
    return random.normal(0, gain / np.sqrt(shape[-1]), shape)


def quantize(tiny, model, config):
    """Quantizes as mlx-lm's converter does and records it in the config as it does."""

    def choose(path, module):
        if path in tiny.overrides:
            return tiny.overrides[path]
        family_rule = getattr(model, "quant_predicate", None)
        return family_rule(path, module) if family_rule else True

    with contextlib.redirect_stdout(io.StringIO()):  # it prints the bits per weight
        model, config = quantize_model(model, config, **tiny.quantize, quant_predicate=choose)
    for path, setting in tiny.overrides.items():
        if path in tiny.unnamed:
            config["quantization"].pop(path, None)
        elif setting is False:  # the converter leaves these out, other tools name them
            config["quantization"][path] = False
    return model, config


def save_weights(weights, folder, tiny):
    """Saves the tensors in one or more files, with an index if they are several."""
    if tiny.unstacked:
        weights = unstack(weights)
    names = sorted(weights)
    metadata = {"format": "mlx"}
    if tiny.shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), {n: weights[n] for n in names}, metadata)
        return
    index = {"metadata": {"total_size": sum(w.nbytes for w in weights.values())}, "weight_map": {}}
    for shard in range(tiny.shards):
        file = f"model-{shard + 1:05d}-of-{tiny.shards:05d}.safetensors"
        part = names[shard :: tiny.shards]
        mx.save_safetensors(str(folder / file), {n: weights[n] for n in part}, metadata)
        index["weight_map"].update({n: file for n in part})
    index["weight_map"] = dict(sorted(index["weight_map"].items()))
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=4) + "\n")


def unstack(weights):
    """Gives every expert its own tensors, as Hugging Face's checkpoints do."""
    result = {}
    for name, tensor in weights.items():
        if ".switch_mlp." not in name:
            result[name] = tensor
            continue
        for expert in range(tensor.shape[0]):
            result[name.replace("switch_mlp", f"experts.{expert}")] = mx.contiguous(tensor[expert])
    return result


def random_prompts(name):
    """Prompts of random ids, other ones for each model; named by their length."""
    random = np.random.RandomState([ord(c) for c in name])
    return {f"len{n}": [int(i) for i in random.randint(0, VOCABULARY, n)] for n in PROMPT_LENGTHS}


def run(model, prompts):
    """Runs all prompts; returns the golden cases."""
    return [
        {"name": name, **reference.greedy(model, ids, GENERATED, reference.all_logits)}
        for name, ids in prompts.items()
    ]


def runs_natively(tiny):
    """Tells whether mlx-lm can run the model in its own dtype: MLX has no 16-bit gather_mm on the CPU."""
    return tiny.family != "qwen3_moe" or tiny.dtype == "f32" or tiny.quantize is not None


def margins_and_variety(cases):
    """The smallest gap between the best two logits, and the smallest number of distinct ids of a case."""
    return (
        min(min(case["margins"]) for case in cases),
        min(len(set(case["ids"])) for case in cases),
    )


def report(tiny, seed, folder, exact, native):
    """Prints one line about a finished model."""
    size = sum(file.stat().st_size for file in folder.iterdir())
    margins = np.concatenate([case["margins"] for case in exact])
    line = f"{tiny.name:30} seed {seed:3} {size / 1024:4.0f} KiB  margin min {margins.min():.4f} median {np.median(margins):.3f}"
    if native and native is not exact:
        same = sum(a["ids"] == b["ids"] for a, b in zip(exact, native))
        apart = max(
            np.abs(np.subtract(a["first"]["logits"], b["first"]["logits"])).max() for a, b in zip(exact, native)
        )
        line += f"  {tiny.dtype} run: {same} of {len(exact)} cases same ids, first logits {apart:.3f} apart"
    print(line, flush=True)
