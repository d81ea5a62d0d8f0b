#!/usr/bin/env python3
"""Evaluates models that transformers saves: class x rotary scaling x tied or not x one file or shards x dtype.

usage: tests/models/transformers_matrix.py [--keep FOLDER]

Models are tiny and random. Each is saved by transformers, evaluated by build/release's `evaluate` (or that of
RINGTRAIN_BIN) in float64, and compared with the nll that transformers computes in float64 from the same file: they may
differ by at most a relative 1e-9. Then each is exported again and read by transformers: its config must be the same,
and the nll must be equal again. Without RINGTRAIN_PYTHON, it runs in build/models/transformers,
into which it installs its packages; if that fails, it ends with 77 (skipped). Classes compute norms and rotary angles
in float32 for every model's dtype, so while they run, "float32" means float64."""
import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import environment  # noqa: E402  (the path above comes first)

BIN = os.environ.get("RINGTRAIN_BIN", os.path.join(ROOT, "build", "release", "bin"))
NEEDED = ["torch", "transformers", "safetensors", "h5py", "numpy", "xxhash", "peft"]  # peft: for peft_test.py
# The keys of a config that an export keeps, as the classes read them. (A window or rotary keys that no layer uses are
# not kept.)
KEYS = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "n_positions", "max_position_embeddings", "rms_norm_eps",
        "layer_norm_epsilon", "tie_word_embeddings", "eos_token_id", "architectures"]
TOLERANCE = 1e-9
V, L, H, G = 48, 2, 4, 2
LENGTHS, TARGETS = (16, 64), 8


def rotary_keys(kind, rope, pairs, draw):
    return {
        "default": {"rope_type": "default"},
        "linear": {"rope_type": "linear", "factor": 1.5 + draw(4)},
        "yarn": {"rope_type": "yarn", "factor": 2.0 + draw(4), "original_max_position_embeddings": 32,
                 "truncate": kind in ("Olmo3", "Gemma3") or bool(draw(2)), "beta_fast": 4.0 + draw(30),
                 "beta_slow": 0.25 + draw(3)},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0 + draw(3),
                   "original_max_position_embeddings": 64},
        "longrope": {"rope_type": "longrope", "factor": 2.0 + draw(4), "original_max_position_embeddings": 32,
                     "short_factor": [1 + i / 7 for i in pairs], "long_factor": [1.5 + draw(3) + i for i in pairs]},
    }[rope]


def options_of(kind, rope, tied, draw):
    """Shapes differ from model to model; draw(n): from 0 to n - 1."""
    D = 2 * (4 + draw(5))
    common = {"vocab_size": V + draw(9), "tie_word_embeddings": tied, "bos_token_id": None, "eos_token_id": None}
    if kind == "GPT2":
        return {**common, "n_embd": 4 * (3 + draw(5)), "n_layer": 1 + draw(3), "n_head": 4, "n_positions": 96,
                "n_inner": None if draw(2) else 20 + draw(20)}
    rotary = rotary_keys(kind, rope, range(D // 2), draw)
    options = {**common, "hidden_size": 4 * (3 + draw(5)), "num_hidden_layers": 1 + draw(3), "num_attention_heads": H,
               "num_key_value_heads": [1, 2, 4][draw(3)], "head_dim": D, "intermediate_size": 12 + draw(20),
               "max_position_embeddings": 128, "rms_norm_eps": [1e-5, 1e-6][draw(2)],
               "rope_parameters": {"rope_theta": float(50 + draw(1000)), **rotary}}
    window = 5 + draw(20) if draw(2) else None
    layers = options["num_hidden_layers"]
    types = [("full_attention", "sliding_attention")[draw(2)] for _ in range(layers)]
    if kind in ("SmolLM3", "Olmo2", "Olmo3", "Gemma2", "Gemma3", "Phi3", "Granite"):
        options.update(pad_token_id=None)
    if kind == "Gemma2":
        options.update(sliding_window=5 + draw(20), layer_types=types, query_pre_attn_scalar=4 + draw(40),
                       attn_logit_softcapping=[None, 2.0 + draw(9)][draw(2)],
                       final_logit_softcapping=[None, 2.0 + draw(9)][draw(2)])
    if kind == "Phi3":  # its heads divide the width
        pairs = [1, 2, 3][draw(3)]
        options.update(hidden_size=2 * H * pairs, sliding_window=window)
        del options["head_dim"]
        if rope == "longrope":
            options["original_max_position_embeddings"] = 32
        for name in ("short_factor", "long_factor"):
            if name in options["rope_parameters"]:
                options["rope_parameters"][name] = options["rope_parameters"][name][:pairs]
    if kind == "Granite":
        options.update(embedding_multiplier=0.5 + draw(9), residual_multiplier=(1 + draw(9)) / 8,
                       logits_scaling=0.5 + draw(4), attention_multiplier=(1 + draw(9)) / 16, mlp_bias=bool(draw(2)))
    if kind == "SmolLM3":
        options.update(use_sliding_window=window is not None, sliding_window=window,
                       no_rope_layers=[draw(2) for _ in range(layers)], mlp_bias=bool(draw(2)))
    if kind in ("Olmo3", "Gemma3"):
        local = {"rope_type": "default", "rope_theta": float(20 + draw(100))}
        options.update(sliding_window=5 + draw(20), layer_types=types,
                       rope_parameters={"full_attention": options["rope_parameters"], "sliding_attention": local})
    if kind == "Gemma3":
        options["query_pre_attn_scalar"] = 4 + draw(40)
    if kind == "Mistral":
        options["sliding_window"] = window
    if kind.startswith("Qwen"):
        options.update(use_sliding_window=window is not None, sliding_window=window, max_window_layers=draw(2))
    if kind in ("Llama", "Qwen3", "SmolLM3", "Olmo2", "Olmo3", "Gemma2", "Gemma3", "Granite"):
        options["attention_bias"] = bool(draw(2))
    if kind == "Llama":
        options["mlp_bias"] = bool(draw(2))
    return options


def matrix():
    for kind in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Olmo2", "Olmo3", "Gemma2", "Gemma3", "Phi3",
                 "Granite", "GPT2"):
        ropes = {"GPT2": ("default",), "Phi3": ("default", "longrope")}.get(
            kind, ("default", "linear", "yarn", "llama3", "longrope"))
        yield from itertools.product([kind], ropes, (True, False), (1, 3), ("float32", "bfloat16", "float16"))


def write_tokens(path, tokens, vocabulary):
    """A token file of one document: docs/data.md."""
    import h5py
    import numpy as np
    import xxhash
    with h5py.File(path, "w") as file:
        file["tokens"] = np.array(tokens, dtype="<u2")
        file["document_offsets"] = np.array([0, len(tokens)], dtype="<i8")
    with h5py.File(path) as file, open(path, "rb") as data, open(path + ".manifest.json", "w") as out:
        datasets = [{"name": name, "type": d.dtype.name, "shape": list(d.shape), "offset": d.id.get_offset()}
                    for name, d in file.items()]
        manifest = {"format": "ringtrain-tokens", "format_version": 2, "bytes": os.path.getsize(path),
                    "xxh3_128": xxhash.xxh3_128_hexdigest(data.read()), "vocab_size": vocabulary,
                    "first_validation_document": 1, "datasets": datasets}
        compact = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        json.dump(dict(manifest, hash=xxhash.xxh3_128_hexdigest(compact.encode())), out)


def program(name, *arguments):
    done = subprocess.run([os.path.join(BIN, name), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}"


def our_nll(model, tokens, folder, mesh):
    path = os.path.join(folder, "evaluation.json")
    program("evaluate", "--checkpoint", model, "--data", tokens, "--dtype", "float64", "--mesh", mesh, "--output", path,
            "--context-lengths", ",".join(map(str, LENGTHS)), "--target-tokens", str(TARGETS),
            "--target-blocks", "1")
    with open(path) as file:
        return [result["nll"] for result in json.load(file)["results"]]


def save(kind, options, dtype, shards, folder, seed):
    import torch
    import transformers
    torch.manual_seed(seed)
    config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(kind, kind + "Config"))(**options)
    model = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, kind + "ForCausalLM"))(config)
    for name, parameter in model.named_parameters():  # norms and biases differ from a new model's: each one matters
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data = torch.randn(parameter.shape) * 0.2 + (1 if is_norm else 0)
    model = model.to(getattr(torch, dtype))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=size if shards == 1 else size * 2 // (2 * shards - 1))


def their_nll(folder, tokens, wrap=lambda model: model):
    """The result of transformers for the folder, in float64, after wrap has modified the model."""
    import torch
    import transformers
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    state = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    with double_for_single():
        model = type(loaded)(loaded.config).double()  # rebuilt: the first one's frequencies are float32
        model.load_state_dict(state)
    model = wrap(model).double().eval()  # last, because what it reads from files may be float32
    with double_for_single(), torch.no_grad():
        values = []
        for length in LENGTHS:
            part = torch.tensor(tokens[-length - 1:])
            logits = model(part[None, :-1], use_cache=False).logits[0]
            assert logits.dtype == torch.float64
            nll = torch.nn.functional.cross_entropy(logits, part[1:], reduction="none")
            values.append(nll[-TARGETS:].mean().item())
    return values


class double_for_single:
    """While it is active, "float32" of PyTorch is float64."""

    def __enter__(self):
        import torch
        self.former = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double

    def __exit__(self, *_):
        import torch
        torch.float32, torch.float, torch.Tensor.float, default = self.former
        torch.set_default_dtype(default)


def changed_keys(model, exported):
    """Returns the keys that transformers reads differently from the export: (key, before, after)."""
    import transformers
    before, after = (transformers.AutoConfig.from_pretrained(folder) for folder in (model, exported))
    pairs = [(key, getattr(before, key, None), getattr(after, key, None)) for key in KEYS]
    # Qwen2's class has no such key.
    return [pair for pair in pairs if pair[1] != pair[2] and pair[:2] != ("head_dim", None)]


def check(place, case, folder):
    import random
    kind, rope, tied, shards, dtype = case
    draw = random.Random(place).randrange
    options = options_of(kind, rope, tied, draw)
    model, exported = os.path.join(folder, "model"), os.path.join(folder, "exported")
    save(kind, options, dtype, shards, model, place)
    tokens = [draw(options["vocab_size"]) for _ in range(LENGTHS[-1] + 1)]
    data = os.path.join(folder, "tokens.h5")
    write_tokens(data, tokens, options["vocab_size"])
    theirs = their_nll(model, tokens)

    def worst(values):
        return max(abs(a / b - 1) for a, b in zip(values, theirs))

    differences = {"evaluate": worst(our_nll(model, data, folder, ["1x1", "1x2"][place % 2]))}
    program("export", "--checkpoint", model, "--output", exported, "--dtype", dtype)
    assert not changed_keys(model, exported), changed_keys(model, exported)
    differences["exported, read by transformers"] = worst(their_nll(exported, tokens))
    differences["exported, read again"] = worst(our_nll(exported, data, folder, "1x1"))
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", help="leave the folder of each model that differs here")
    arguments = parser.parse_args()
    environment.use("models/transformers", NEEDED)
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed, most = [], 0.0
    for place, case in enumerate(matrix()):
        with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
            try:
                differences = check(place, case, folder)
            except AssertionError as error:
                print(f"{case}: {error}")
                differences = {"failed": float("inf")}
            most = max(most, *(value for value in differences.values()))
            over = {name: value for name, value in differences.items() if not value <= TOLERANCE}
            if over:
                failed.append(case)
                print(f"{case}: {over}")
                if arguments.keep:
                    shutil.copytree(folder, os.path.join(arguments.keep, f"{place:03}"), dirs_exist_ok=True)
    print(f"{place + 1} models, transformers {transformers.__version__}: worst difference {most:.1e}, "
          f"{len(failed)} above {TOLERANCE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
