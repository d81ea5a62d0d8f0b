#!/usr/bin/env python3
"""Writes published_configs.json for tests/train/models/hugging_face_config_test.cpp: sizes of published models from
litgpt (litgpt/config.py), and the default sizes of each class, saved by transformers' own classes, with the resulting
numbers of parameters.

Run as `python make_published_configs.py FOLDER` with PyTorch, transformers and FOLDER/litgpt/config.py of that package;
neither the build nor the tests need it."""
import importlib.util
import json
import os
import sys

import torch
import transformers

import make_hugging_face

# prefix of litgpt's names: transformers' class, and those of its models that tie the head to the embedding
CLASSES = {"Llama-3": ("Llama", ("Llama-3.2-1B", "Llama-3.2-3B")), "SmolLM2": ("Llama", ("SmolLM2",)),
           "OLMo-2": ("Olmo2", ()), "Gemma-2-": ("Gemma2", ("Gemma",)), "Gemma-3-": ("Gemma3", ("Gemma",)),
           "Phi-3": ("Phi3", ()), "Mistral": ("Mistral", ()),
           "Qwen2.5": ("Qwen2", ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B")),
           "Qwen3": ("Qwen3", ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B"))}
NAMES = ("Llama-3.1-8B", "Llama-3.1-405B", "Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.3-70B-Instruct", "SmolLM2-135M",
         "SmolLM2-1.7B", "OLMo-2-1124-7B", "OLMo-2-1124-13B", "Gemma-2-2b", "Gemma-2-9b", "Gemma-2-27b",
         "Gemma-3-1b-it", "Gemma-3-4b-it", "Gemma-3-12b-it", "Gemma-3-27b-it", "Phi-3-mini-4k-instruct",
         "Mistral-7B-v0.3", "Mistral-Large-Instruct-2411", "Qwen2.5-0.5B", "Qwen2.5-7B", "Qwen2.5-72B", "Qwen3-0.6B",
         "Qwen3-4B", "Qwen3-8B", "Qwen3-32B")


def known_models(folder):
    spec = importlib.util.spec_from_file_location("litgpt_config", os.path.join(folder, "litgpt", "config.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["litgpt_config"] = module
    spec.loader.exec_module(module)
    return {model["name"]: module.Config(**model) for model in module.configs}


def options_of(name, kind, tied, model):
    rope = {"rope_type": "default", "rope_theta": float(model.rope_base)}
    scaled = model.rope_adjustments or {}
    if "low_freq_factor" in scaled:
        rope |= {"rope_type": "llama3", "factor": scaled["factor"], "low_freq_factor": scaled["low_freq_factor"],
                 "high_freq_factor": scaled["high_freq_factor"],
                 "original_max_position_embeddings": scaled["original_max_seq_len"]}
    options = {"vocab_size": model.padded_vocab_size, "hidden_size": model.n_embd, "num_hidden_layers": model.n_layer,
               "num_attention_heads": model.n_head, "num_key_value_heads": model.n_query_groups,
               "intermediate_size": model.intermediate_size, "max_position_embeddings": model.block_size,
               "rms_norm_eps": model.norm_eps, "tie_word_embeddings": name.startswith(tied) if tied else False,
               "rope_parameters": rope}
    if kind in ("Llama", "Mistral", "Gemma2", "Gemma3", "Qwen3"):
        options["head_dim"] = model.head_size
    if kind == "Gemma3":
        glob = {"rope_type": "default", "rope_theta": float(model.rope_base)}
        if scaled:
            glob |= {"rope_type": "linear", "factor": scaled["factor"]}
        options["rope_parameters"] = {"full_attention": glob, "sliding_attention": {
            "rope_type": "default", "rope_theta": float(model.rope_local_base_freq)}}
    if kind.startswith("Gemma"):
        options["sliding_window"] = model.sliding_window_size
        options["query_pre_attn_scalar"] = model.attention_scores_scalar or model.head_size
    return options


def published_config(name, model):
    kind, tied = next(value for prefix, value in CLASSES.items() if name.startswith(prefix))
    config_class = getattr(transformers, "Gemma3TextConfig" if kind == "Gemma3" else kind + "Config")
    config = config_class(**options_of(name, kind, tied, model))
    config.architectures = [kind + "ForCausalLM"]
    return config


def main():
    known, published = known_models(sys.argv[1]), {}
    configs = {name: published_config(name, known[name]) for name in NAMES}
    for kind, (config_class, _) in make_hugging_face.CLASSES.items():
        configs[kind] = getattr(transformers, config_class)()
    for name, config in configs.items():
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        saved = make_hugging_face.saved_config(config)
        published[name] = {"parameters": sum(x.numel() for x in model.parameters()), "config": saved}
        print(name, published[name]["parameters"])
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published_configs.json")
    with open(path, "w", encoding="utf-8") as file:
        lines = [f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in published.items()]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
