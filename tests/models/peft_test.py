#!/usr/bin/env python3
"""Compares adapters with PEFT, in both directions, for every class whose adapters it supports.

PEFT makes adapters of a tiny random model, and `evaluate` of its folder must give the nll that PEFT computes. Then
`train` makes adapters, and PEFT must compute from the exported folder what `evaluate` does for the run: to 1e-9, in
float64. transformers must compute from `export --merge` the logits of PEFT to 1e-5, in float32. Adapters trained with
another rope than their base's cannot be a PEFT folder. Without RINGTRAIN_PYTHON, it runs
in build/models/transformers, into which it installs its packages; if that fails, it ends with 77 (skipped)."""
import json
import os
import random
import shutil
import sys
import tempfile

import transformers_matrix as matrix

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIG = """
model: {{from: {base}}}
lora: {{rank: 3, alpha: 5, targets: [{targets}]}}
data: {{train: {data}, packing: concat}}
training: {{seq_len: 32, global_batch_size: 2, steps: 6, trainable: ["*layernorm*", "model.norm.weight"]}}
optimizer: {{lr: 0.02}}
"""


def adapted(folder):
    """Returns a function that adds a folder's adapters to a model."""
    import peft
    return lambda model: peft.PeftModel.from_pretrained(model, folder)


def make_adapters(base, folder, seed, **changes):
    """Saves random adapters with nonzero B, and other final norms. changes: to PEFT's options."""
    import peft
    import torch
    import transformers
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    options = {"r": 4, "lora_alpha": 6, "target_modules": TARGETS, "modules_to_save": ["model.norm"]} | changes
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", use_rslora=seed % 2 == 1, **options))
    for name, parameter in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            parameter.data = torch.randn(parameter.shape) * 0.2
    model.save_pretrained(folder)


def logits(base, tokens, wrap):
    """Returns the logits of a folder's model in float32."""
    import torch
    import transformers
    model = wrap(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)).eval()
    with torch.no_grad():
        return model(torch.tensor(tokens)[None], use_cache=False).logits


def difference(ours, theirs):
    return max(abs(a / b - 1) for a, b in zip(ours, theirs))


def check(kind, seed, folder):
    draw = random.Random(seed).randrange
    options = matrix.options_of(kind, "default", True, draw)
    base, made, run, ours, merged, data = (os.path.join(folder, name) for name in
                                           ("base", "made", "run", "ours", "merged", "tokens.h5"))
    matrix.save(kind, options, "float32", 1, base, seed)
    tokens = [draw(options["vocab_size"]) for _ in range(matrix.LENGTHS[-1] + 1)]
    matrix.write_tokens(data, tokens, options["vocab_size"])
    make_adapters(base, made, seed)
    found = {"made by PEFT": (difference(matrix.our_nll(made, data, folder, ["1x1", "1x2"][seed % 2]),
                                         matrix.their_nll(base, tokens, adapted(made))), 1e-9)}
    found |= check_targets(base, tokens, data, folder, seed)
    with open(os.path.join(folder, "run.yaml"), "w") as file:
        file.write(CONFIG.format(base=base, data=data, targets=", ".join(TARGETS)))
    with open(os.path.join(base, "model.safetensors"), "rb") as file:
        before = file.read()
    matrix.program("train", "--config", os.path.join(folder, "run.yaml"), "--output", run)
    matrix.program("export", "--checkpoint", run, "--output", ours)
    matrix.program("export", "--checkpoint", run, "--merge", "--output", merged)
    with open(os.path.join(base, "model.safetensors"), "rb") as file:
        assert file.read() == before, "the base was written to"
    found["trained"] = (difference(matrix.our_nll(run, data, folder, "1x1"),
                                   matrix.their_nll(base, tokens, adapted(ours))), 1e-9)
    expected = logits(base, tokens, adapted(ours))
    change = (expected - logits(base, tokens, lambda model: model)).abs().max().item()
    assert change > 0.01, f"adapters change logits by {change} alone"
    found["merged"] = ((logits(merged, tokens, lambda model: model) - expected).abs().max().item()
                       / expected.abs().max().item(), 1e-5)
    return found | check_changed_base(base, tokens, data, folder)


def check_targets(base, tokens, data, folder, seed):
    """Adapters of some modules: by a pattern, by layers; and of a base's embedding and head, with their own numbers."""
    found = {}
    for name, changes in {"pattern": {"target_modules": r".*\.(?:0\.self_attn\.[qv]|1\.mlp\.(?!gate)[a-z]+)_proj"},
                          "layers": {"target_modules": ["o_proj", "up_proj"], "layers_to_transform": [1]},
                          "untied": {"modules_to_save": ["embed_tokens", "lm_head"]}}.items():
        made, again = os.path.join(folder, name), os.path.join(folder, name + "_again")
        make_adapters(base, made, seed, **changes)
        theirs = matrix.their_nll(base, tokens, adapted(made))
        found[name] = (difference(matrix.our_nll(made, data, folder, "1x2"), theirs), 1e-9)
        matrix.program("export", "--checkpoint", made, "--output", again)
        found[name + ", exported again"] = (difference(matrix.their_nll(base, tokens, adapted(again)), theirs), 1e-9)
    return found


def check_changed_base(base, tokens, data, folder):
    """Trains adapters with yarn on a base without it, and on one with it: the first run and its merged export compute
    what PEFT computes from the second, whose base has the run's rope. The first cannot be a PEFT folder."""
    run, of_scaled, ours, merged, scaled = (os.path.join(folder, name)
                                            for name in ("yarn", "of-scaled", "adapters", "whole", "scaled"))
    rope = {"factor": 4.0, "original_max_position_embeddings": 64}
    shutil.copytree(base, scaled)
    path = os.path.join(scaled, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["rope_parameters"] |= {"rope_type": "yarn"} | rope
    with open(path, "w") as file:
        json.dump(config, file)
    for model, output in ((base, run), (scaled, of_scaled)):
        matrix.program("train", "--config", os.path.join(folder, "run.yaml"), "--output", output, "--set",
                       f"model.from={model}", "--set", "model.rope_scaling.type=yarn", *(f"--set=model.rope_scaling.{key}={value}"
                                                                  for key, value in rope.items()))
    try:
        matrix.program("export", "--checkpoint", run, "--output", ours)
    except AssertionError as error:
        assert "export with --merge" in str(error), error
    else:
        raise AssertionError("a PEFT folder without the run's rope was written")
    matrix.program("export", "--checkpoint", of_scaled, "--output", ours)
    matrix.program("export", "--checkpoint", run, "--merge", "--output", merged)
    right = matrix.their_nll(scaled, tokens, adapted(ours))
    assert difference(matrix.their_nll(base, tokens, adapted(ours)), right) > 1e-4, "yarn changes nothing"
    return {"yarn": (difference(matrix.our_nll(run, data, folder, "1x1"), right), 1e-9),
            "yarn, merged": (difference(matrix.our_nll(merged, data, folder, "1x1"), right), 1e-6)}


def main():
    matrix.environment.use("models/transformers", matrix.NEEDED)
    import peft
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    for seed, kind in enumerate(("Llama", "Mistral", "Qwen2", "Qwen3")):
        with tempfile.TemporaryDirectory(prefix="peft-") as folder:
            for name, (value, allowed) in check(kind, seed, folder).items():
                failed += not value <= allowed
                print(f"{kind} {name}: {value:.1e} (allowed {allowed})")
    print(f"peft {peft.__version__}, transformers {transformers.__version__}: {failed} above what is allowed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
