#!/usr/bin/env python3
"""Makes tests/models/folders: tiny random models as transformers saves them, with transformers' results.

Run as `python make_folders.py` with PyTorch and transformers; neither the build nor the tests need it. Each folder has
config.json, its weights, and expected.json: tokens, and the mean nll in float64 of the last tokens at two context
lengths. The classes compute norms and rotary angles in float32 for any model's dtype, so while they run, "float32"
means float64."""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "folders")
VOCABULARY, LENGTHS, TARGETS = 48, (16, 64), 8
SINGLE = torch.float32
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, max_position_embeddings=128)
PAD = dict(pad_token_id=None)
MIXED = ["sliding_attention", "full_attention"]
GEMMA = dict(LLAMA, head_dim=8, sliding_window=12, layer_types=MIXED, query_pre_attn_scalar=16, **PAD)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=96)
# name: class, config, dtype, shards
MODELS = {
    "llama": ("Llama", {**LLAMA, "head_dim": 8, "rms_norm_eps": 1e-5}, torch.float32, 1),
    "llama_tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}, torch.float16, 1),
    "llama_float64": ("Llama", {**LLAMA, "rope_theta": 500000.0}, torch.float64, 1),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": 12}, torch.bfloat16, 1),
    "qwen2": ("Qwen2", {**LLAMA, "tie_word_embeddings": True}, torch.bfloat16, 1),
    "qwen3": ("Qwen3", {**LLAMA, "head_dim": 8}, torch.float32, 3),
    "gpt2": ("GPT2", GPT2, torch.float32, 1),
    "gpt2_untied": ("GPT2", {**GPT2, "n_inner": 40, "tie_word_embeddings": False}, torch.float16, 3),
    "smollm3": ("SmolLM3", {**LLAMA, "no_rope_layers": [1, 0], **PAD}, torch.bfloat16, 1),
    "olmo2": ("Olmo2", {**LLAMA, **PAD}, torch.float32, 1),
    "olmo3": ("Olmo3", {**LLAMA, "sliding_window": 12, "layer_types": MIXED, **PAD}, torch.bfloat16, 1),
    "gemma2": ("Gemma2", {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0}, torch.float32, 1),
    "gemma3": ("Gemma3", GEMMA, torch.bfloat16, 1),
    "phi3": ("Phi3", {**LLAMA, "sliding_window": 40, **PAD}, torch.float32, 1),
    "granite": ("Granite", {**LLAMA, "embedding_multiplier": 3.0, "residual_multiplier": 0.25, "logits_scaling": 2.0,
                            "attention_multiplier": 0.125, **PAD}, torch.bfloat16, 1),
}


def classes(name):
    model = {"GPT2": "GPT2LMHeadModel"}.get(name, name + "ForCausalLM")
    return getattr(transformers, {"Gemma3": "Gemma3Text"}.get(name, name) + "Config"), getattr(transformers, model)


def shard_limit(model, shards):
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return size if shards == 1 else size * 2 // (2 * shards - 1)


def save(name, number):
    """Saves a model with random weights; norms and biases differ from those of a new model, so each one matters."""
    kind, options, dtype, shards = MODELS[name]
    config_class, model_class = classes(kind)
    torch.manual_seed(number)
    model = model_class(config_class(**options, bos_token_id=None, eos_token_id=VOCABULARY - 1))
    for parameter_name, parameter in model.named_parameters():
        is_norm = parameter.dim() == 1 and parameter_name.endswith("weight")
        parameter.data = torch.randn(parameter.shape) * 0.2 + (1 if is_norm else 0)
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model = model.to(dtype)
    limit = shard_limit(model, shards)
    model.save_pretrained(folder, max_shard_size=limit)
    if name != "llama":  # one is enough: all give the token that ends a text, as config.json does
        os.remove(os.path.join(folder, "generation_config.json"))
    return folder, {"dtype": str(dtype).removeprefix("torch."), "max_shard_size": limit}


def original_gpt2(source, folder):
    """The names in the file of 2019: no prefix, and causal masks next to the weights."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for file in ["config.json", "expected.json"]:
        shutil.copy(os.path.join(source, file), folder)
    tensors = load_file(os.path.join(source, "model.safetensors"))
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    for layer in range(GPT2["n_layer"]):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(96, 96, dtype=torch.uint8))[None, None]
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def state_of(folder):
    state = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            state.update(load_file(os.path.join(folder, file)))
    return {name: tensor.double() for name, tensor in state.items()}


def expected(folder, kind, state):
    config_class, model_class = classes(kind)
    config = config_class.from_pretrained(folder)
    config.dtype = None
    return nll_of(model_class, config, state)


def nll_of(model_class, config, state):
    """Returns tokens, and the mean nll of the last of them at each length, of a model with these weights."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, VOCABULARY - 1, (LENGTHS[-1] + 1,), generator=generator)
    tokens[-1] = VOCABULARY - 1  # the end of the document
    model = model_class(config).eval()  # no dropout
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert missing == [] or (config.tie_word_embeddings and missing == ["lm_head.weight"]), missing
    if config.tie_word_embeddings:
        model.tie_weights()
    assert all(p.dtype == torch.float64 for p in model.parameters())
    nll = []
    for length in LENGTHS:
        part = tokens[-length - 1:]
        with torch.no_grad():
            logits = model(part[None, :-1], use_cache=False).logits[0]
        each = torch.nn.functional.cross_entropy(logits, part[1:], reduction="none")
        nll.append(each[-TARGETS:].mean().item())
    return {"vocab_size": VOCABULARY, "tokens": tokens.tolist(), "context_lengths": list(LENGTHS),
            "target_tokens": TARGETS, "nll": nll}


if __name__ == "__main__":
    saved = {name: save(name, number) for number, name in enumerate(MODELS)}
    states = {name: state_of(folder) for name, (folder, _) in saved.items()}
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    for name, (folder, facts) in saved.items():
        result = {**facts, **expected(folder, MODELS[name][0], states[name])}
        with open(os.path.join(folder, "expected.json"), "w") as file:
            file.write(json.dumps(result) + "\n")
        print(name, result["nll"])
    torch.float32 = torch.float = SINGLE
    original_gpt2(saved["gpt2"][0], os.path.join(HERE, "gpt2_original"))
