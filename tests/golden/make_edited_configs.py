#!/usr/bin/env python3
"""Writes edited_configs.json for tests/train/models/hugging_face_golden_test.cpp: configs of hugging_face.json, edited
by hand as people do, and the mean nll that transformers computes in float64 from each.

Run as `python make_edited_configs.py` with PyTorch and transformers; neither the build nor the tests need it."""
import json
import os

import torch
import transformers

from make_golden import compute_in_double
from make_hugging_face import CLASSES, nll_of

LINEAR = {"rope_type": "linear", "factor": 8.0}
LONG = {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.125, 1.25, 1.375, 1.5],
        "long_factor": [2.0, 3.5, 5.0, 6.5, 8.0], "rope_theta": 100.0}
NO_LAYERS = {"num_hidden_layers": 4, "layer_types": None}
# name, case of hugging_face.json, merge patch (RFC 7396: null removes a key)
EDITS = [
    ("gemma2_pattern_of_the_class", "gemma2_default_untied", {**NO_LAYERS, "sliding_window_pattern": 2}),
    ("gemma2_another_pattern", "gemma2_default_untied", {**NO_LAYERS, "sliding_window_pattern": 3}),
    ("gemma2_pattern_of_the_class_and_other_layers", "gemma2_default_untied",
     {"layer_types": ["full_attention", "sliding_attention"], "sliding_window_pattern": 2}),
    ("gemma2_another_pattern_and_its_layers", "gemma2_default_untied",
     {"layer_types": ["sliding_attention", "sliding_attention"], "sliding_window_pattern": 3}),
    ("olmo3_pattern_of_the_class", "olmo3_default_untied", {**NO_LAYERS, "sliding_window_pattern": 4}),
    ("olmo3_another_pattern", "olmo3_default_untied", {**NO_LAYERS, "sliding_window_pattern": 3}),
    ("gemma3_another_pattern", "gemma3_text_default_untied", {**NO_LAYERS, "sliding_window_pattern": 3}),
    ("phi3_trained_length_within", "phi3_longrope_long_untied",
     {"original_max_position_embeddings": None, "rope_parameters": {"original_max_position_embeddings": 16}}),
    ("phi3_both_trained_lengths", "phi3_longrope_long_untied",
     {"original_max_position_embeddings": 32, "rope_parameters": {"original_max_position_embeddings": 4096}}),
]
for kind in ("gemma3_text", "olmo3"):
    default, yarn = f"{kind}_default_untied", f"{kind}_yarn_untied"
    EDITS += [
        (f"{kind}_another_scaling", default, {"rope_scaling": LINEAR}),
        (f"{kind}_the_same_scaling", default,
         {"rope_parameters": {"full_attention": LINEAR}, "rope_scaling": {"type": "linear", **LINEAR}}),
        (f"{kind}_another_theta", default, {"rope_theta": 7.5}),
        (f"{kind}_the_same_theta", default, {"rope_theta": 100.0}),
        (f"{kind}_theta_without_the_sections", default,
         {"rope_theta": 7.5, "rope_parameters": {"full_attention": {"rope_theta": None},
                                                 "sliding_attention": {"rope_theta": None}}}),
        (f"{kind}_another_trained_length", yarn, {"original_max_position_embeddings": 16}),
        (f"{kind}_the_same_trained_length", yarn, {"original_max_position_embeddings": 64}),
    ]
EDITS += [
    ("gemma3_text_another_local_theta", "gemma3_text_default_untied", {"rope_local_base_freq": 7.5}),
    ("gemma3_text_the_same_local_theta", "gemma3_text_default_untied", {"rope_local_base_freq": 30.0}),
    ("gemma3_text_local_theta_without_the_section", "gemma3_text_default_untied",
     {"rope_local_base_freq": 7.5, "rope_parameters": {"sliding_attention": {"rope_theta": None}}}),
    ("llama_another_theta", "llama_default_untied", {"rope_theta": 7.5}),
    ("llama_the_same_theta", "llama_default_untied", {"rope_theta": 100.0}),
    ("llama_theta_without_the_section", "llama_default_untied",
     {"rope_theta": 7.5, "rope_parameters": {"rope_theta": None}}),
    ("llama_another_theta_in_the_older_section", "llama_default_untied",
     {"rope_theta": 7.5, "rope_parameters": None, "rope_scaling": {**LINEAR, "rope_theta": 100.0}}),
    ("llama_an_older_section_without_theta", "llama_linear_untied",
     {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    ("llama_an_older_section_and_its_theta", "llama_linear_untied",
     {"rope_theta": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    ("llama_both_trained_lengths", "llama_longrope_long_untied", {"original_max_position_embeddings": 64}),
]


def merged(base, patch):
    if not isinstance(patch, dict) or not isinstance(base, dict):
        return patch
    result = {key: value for key, value in base.items() if key not in patch}
    result.update({key: merged(base.get(key, {}), value) for key, value in patch.items() if value is not None})
    return result


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "hugging_face.json")) as file:
        cases = {case["name"]: case for case in json.load(file)}
    edited = []
    for name, of, patch in EDITS:
        case = cases[of]
        kind = case["config"]["model_type"]
        text = json.dumps(merged(case["config"], patch))  # a copy: the class changes its argument
        config = getattr(transformers, CLASSES[kind][0]).from_dict(json.loads(text))
        nll = nll_of(getattr(transformers, CLASSES[kind][1])(config).double().eval(), kind, torch.tensor(case["tokens"]))
        edited.append({"name": name, "of": of, "patch": patch, "nll": nll.mean().item()})
        print(name, edited[-1]["nll"])
    with open(os.path.join(folder, "edited_configs.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(edit, separators=(",", ":")) for edit in edited) + "\n]\n")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    compute_in_double()
    main()
