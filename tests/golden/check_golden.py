#!/usr/bin/env python3
"""Holds the golden numbers that are committed here against Hugging Face's own model classes, in float64.

Run as `python check_golden.py` with PyTorch and transformers; neither the build nor the tests need it. The classes
compute norms and rotary angles in float32 whatever the model's dtype, so while they run, "float32" means float64. Left
out: GPT-2, whose class has one projection for q, k and v, and ntk scaling, which transformers does not have."""
import glob
import json
import os

import torch
import transformers

from make_golden import compute_in_double, weight

CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "mistral": ("MistralConfig", "MistralForCausalLM"),
           "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"), "qwen3": ("Qwen3Config", "Qwen3ForCausalLM")}
TOLERANCE = 1e-10


def make_model(c):
    config_class, model_class = CLASSES[c["architecture"]]
    same = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "rms_norm_eps", "tie_word_embeddings"]
    options = {key: c[key] for key in same}
    scaling = dict(c["rope_scaling"])
    kind = scaling.pop("type")
    options["max_position_embeddings"] = 4096
    options["rope_parameters"] = {"rope_type": "default" if kind == "none" else kind, "rope_theta": c["rope_theta"],
                                  **scaling}
    window = c["sliding_window"]
    if c["architecture"].startswith("qwen"):
        options.update(use_sliding_window=window > 0, sliding_window=window or None, max_window_layers=0)
    else:
        options["sliding_window"] = window or None
    config = getattr(transformers, config_class)(**options, attn_implementation="sdpa")
    return getattr(transformers, model_class)(config).double()


def check(path):
    with open(path) as file:
        golden = json.load(file)
    if "data" not in golden:  # made by another script
        return
    c, data = golden["config"], golden["data"]
    if c["architecture"] not in CLASSES or c["rope_scaling"]["type"] == "ntk":
        return
    if c["architecture"] == "llama" and c["sliding_window"]:
        c = {**c, "architecture": "mistral"}  # transformers' Llama has no window
    model = make_model(c)
    parameters = dict(model.named_parameters())
    assert sorted(parameters) == sorted(p["name"] for p in golden["parameters"]), path
    for place, parameter in enumerate(golden["parameters"]):
        parameters[parameter["name"]].data = weight(place, parameter["name"], parameter["shape"])
    tokens, labels = torch.tensor(data["tokens"]), torch.tensor(data["labels"])
    inputs = {"input_ids": tokens, "position_ids": torch.tensor(data["positions"]), "use_cache": False}
    if golden["documents_present"]:
        documents, place = torch.tensor(data["documents"]), torch.arange(tokens.shape[1])
        seen = (place[:, None] >= place[None, :]) & (documents[:, :, None] == documents[:, None, :])
        if c["sliding_window"]:
            seen = seen & (place[:, None] - place[None, :] < c["sliding_window"])
        inputs["attention_mask"] = seen[:, None]
    logits = model(**inputs).logits
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-1)
    weights = torch.tensor(data["weights"]).flatten() * (labels.flatten() >= 0)
    ((weights * nll).sum() / weights.sum()).backward()

    def difference(ours, theirs):
        return ((theirs - ours).abs().max() / ours.abs().max()).item()

    worst = {"nll": difference(torch.tensor(golden["nll"]).flatten(), nll.detach())}
    for parameter in golden["parameters"]:
        gradient = torch.tensor(parameter["gradient"])
        worst[parameter["name"]] = difference(gradient, parameters[parameter["name"]].grad.flatten())
    name = max(worst, key=worst.get)
    print(f"{os.path.basename(path)}: {type(model).__name__}, {len(worst)} tensors, worst {worst[name]:.1e} ({name})")
    assert worst[name] < TOLERANCE, path


if __name__ == "__main__":
    compute_in_double()
    for golden_file in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "*.json"))):
        check(golden_file)
