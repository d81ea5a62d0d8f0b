#!/usr/bin/env python3
"""Writes hugging_face.json for tests/train/models/hugging_face_golden_test.cpp: tiny models of transformers' own
classes in float64, with every kind of rotary scaling, tied and untied heads, windows, and biases. Each has config.json
as save_pretrained writes it and the nll of every token, and one model of each class has every gradient (two models if
the class's layers may differ).

Run as `python make_hugging_face.py` with PyTorch and transformers; neither the build nor the tests need it. Weights
come from splitmix64, in ringtrain's order and layout of parameters, so that the test makes them itself. The classes
compute norms and rotary angles in float32 for any model's dtype, so while they run, "float32" means float64."""
import json
import os
import tempfile

import torch
import transformers

from make_golden import compute_in_double, splitmix64, weight

CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "mistral": ("MistralConfig", "MistralForCausalLM"),
           "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"), "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
           "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM"), "olmo2": ("Olmo2Config", "Olmo2ForCausalLM"),
           "olmo3": ("Olmo3Config", "Olmo3ForCausalLM"), "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
           "gemma3_text": ("Gemma3TextConfig", "Gemma3ForCausalLM"), "phi3": ("Phi3Config", "Phi3ForCausalLM"),
           "granite": ("GraniteConfig", "GraniteForCausalLM"),
           "gpt2": ("GPT2Config", "GPT2LMHeadModel")}
V, C, F, L, H, G, D = 29, 20, 24, 2, 2, 1, 16
B, S = 2, 40  # between the two trained lengths of the longrope cases
PAIRS = range(D // 2)
LATER = ("smollm3", "olmo2", "olmo3", "gemma2", "gemma3_text", "granite")  # rotate like the others: fewer scalings
LATER_ROPES = ("default", "yarn", "llama3", "longrope_long")
PHI3_ROPES = ("default", "longrope_short", "longrope_long")  # no others are allowed
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
ROPES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn_keys": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0,
                  "beta_slow": 0.5, "mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False},
    "yarn_attention": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 32,
                       "attention_factor": 1.2},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "longrope_short": {"rope_type": "longrope", "original_max_position_embeddings": 64, "factor": None,
                       "short_factor": [1 + i / 8 for i in PAIRS], "long_factor": [2 + 1.5 * i for i in PAIRS]},
    "longrope_long": {"rope_type": "longrope", "original_max_position_embeddings": 32, "factor": 4.0,
                      "short_factor": [1 + i / 8 for i in PAIRS], "long_factor": [2 + 1.5 * i for i in PAIRS]},
}


def make_config(kind, rope, tied, layers, mixed=False):
    if kind == "gpt2":
        options = {"n_embd": C, "n_layer": layers, "n_head": H, "n_positions": 64, "n_inner": F}
    else:
        options = {"hidden_size": C, "num_hidden_layers": layers, "num_attention_heads": H, "num_key_value_heads": G,
                   "head_dim": D, "intermediate_size": F, "max_position_embeddings": 256,
                   "rope_parameters": {"rope_theta": 100.0, **{k: v for k, v in ROPES[rope].items()}}}
        if rope == "longrope_short":
            options["rope_parameters"].pop("factor")  # absent is null
    window = 11 if not tied else None
    if kind == "phi3":  # its heads divide the width
        del options["head_dim"]
        options["sliding_window"] = window
        if rope != "default":  # outside the section, if this class has a default
            options["original_max_position_embeddings"] = ROPES[rope]["original_max_position_embeddings"]
        for name in ("short_factor", "long_factor"):
            if name in options["rope_parameters"]:
                options["rope_parameters"][name] = options["rope_parameters"][name][:C // H // 2]
    if kind == "granite":
        options.update(embedding_multiplier=3.5, residual_multiplier=0.3, logits_scaling=1.75,
                       attention_multiplier=0.0625)
    if kind == "gemma2":
        options.update(sliding_window=11, layer_types=MIXED[:layers], pad_token_id=None, query_pre_attn_scalar=24,
                       attn_logit_softcapping=3.0 if not tied else None, final_logit_softcapping=4.0)
    if kind in ("olmo3", "gemma3_text"):  # layers with a window have their own rotary keys
        rope_parameters = options["rope_parameters"]
        local = {"rope_type": "default", "rope_theta": 30.0 if kind == "gemma3_text" else 100.0}
        options.update(rope_parameters={"full_attention": rope_parameters, "sliding_attention": local},
                       sliding_window=11, layer_types=MIXED[:layers], pad_token_id=None)
    if kind == "gemma3_text":
        options["query_pre_attn_scalar"] = 24
    if kind == "smollm3":
        options.update(no_rope_layers=[1, 0, 1][:layers], use_sliding_window=not tied,
                       sliding_window=11 if not tied else None)
    if kind in ("smollm3", "olmo2", "phi3"):
        options["pad_token_id"] = None
    if kind == "mistral":
        options["sliding_window"] = window
    if kind.startswith("qwen"):
        options.update(use_sliding_window=window is not None, sliding_window=window,
                       max_window_layers=1 if mixed or rope == "llama3" else 0)
    if kind in ("llama", "qwen3", "smollm3", "olmo2", "olmo3", "gemma2", "granite"):
        options["attention_bias"] = not tied
    if kind in ("llama", "smollm3", "granite"):
        options["mlp_bias"] = not tied
    return getattr(transformers, CLASSES[kind][0])(vocab_size=V, tie_word_embeddings=tied, bos_token_id=1,
                                                   eos_token_id=2, **options)


def saved_config(model):
    """Returns config.json of a model, or of only a config."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(os.path.join(folder, "config.json")) as file:
            return json.load(file)


def parameters_of(model, kind):
    """(name, shape, parts) in ringtrain's order; parts: (tensor's name, a function that returns this part of it)."""
    if kind != "gpt2":
        order = ["input_layernorm.weight", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                 "self_attn.o_proj", "self_attn.q_norm.weight", "self_attn.k_norm.weight",
                 "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight", "mlp.gate_proj",
                 "mlp.up_proj", "mlp.down_proj", "post_feedforward_layernorm.weight"]
        names = ["model.embed_tokens.weight"]
        for layer in range(model.config.num_hidden_layers):
            for name in order:
                full = f"model.layers.{layer}.{name}"
                names += [full] if full.endswith(".weight") else [full + ".weight", full + ".bias"]
        names += ["model.norm.weight", "lm_head.weight"]
        known = dict(model.named_parameters())
        if kind == "phi3":
            return [part for name in names for part in phi3_part(model.config, known, name)]
        return [(name, name, lambda t: t) for name in names if name in known]
    parts = [("model.embed_tokens.weight", "transformer.wte.weight", lambda t: t),
             ("model.embed_positions.weight", "transformer.wpe.weight", lambda t: t)]

    def norm(name, theirs):
        for end in (".weight", ".bias"):
            parts.append((name + end, theirs + end, lambda t: t))

    def linear(name, theirs, columns=slice(None)):  # Conv1D: [in, out]
        parts.append((name + ".weight", theirs + ".weight", lambda t: t[:, columns].T))
        parts.append((name + ".bias", theirs + ".bias", lambda t: t[columns]))

    C = model.config.n_embd
    for layer in range(model.config.n_layer):
        p, t = f"model.layers.{layer}.", f"transformer.h.{layer}."
        norm(p + "input_layernorm", t + "ln_1")
        for i, which in enumerate("qkv"):
            linear(p + f"self_attn.{which}_proj", t + "attn.c_attn", slice(i * C, (i + 1) * C))
        linear(p + "self_attn.o_proj", t + "attn.c_proj")
        norm(p + "post_attention_layernorm", t + "ln_2")
        linear(p + "mlp.up_proj", t + "mlp.c_fc")
        linear(p + "mlp.down_proj", t + "mlp.c_proj")
    norm("model.norm", "transformer.ln_f")
    if not model.config.tie_word_embeddings:
        parts.append(("lm_head.weight", "lm_head.weight", lambda t: t))
    return parts


def phi3_part(config, known, name):
    """The part of Phi-3's tensors that is a parameter of ringtrain's: rows of a tensor that contains several."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    wide = config.intermediate_size
    rows = {"q_proj": ("qkv_proj", 0, queries), "k_proj": ("qkv_proj", queries, keys),
            "v_proj": ("qkv_proj", queries + keys, keys), "gate_proj": ("gate_up_proj", 0, wide),
            "up_proj": ("gate_up_proj", wide, wide)}
    module = name.split(".")[-2]
    if module in rows:
        joined, first, count = rows[module]
        theirs = name.replace(module, joined)
        return [(name, theirs, lambda t: t[first:first + count])] if theirs in known else []
    return [(name, name, lambda t: t)] if name in known else []


def nll_of(model, kind, tokens):
    """The nll of every token except the first of each row, with test weights; it is differentiable."""
    tensors, parts = dict(model.named_parameters()), parameters_of(model, kind)
    assert {theirs for _, theirs, _ in parts} == set(tensors), (kind, set(tensors))
    with torch.no_grad():
        for place, (name, theirs, part) in enumerate(parts):
            view = part(tensors[theirs])
            view.copy_(weight(place, name, list(view.shape)))
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


def make_case(kind, rope, tied, layers, gradients):
    config = make_config(kind, rope, tied, layers, mixed=gradients)
    model = getattr(transformers, CLASSES[kind][1])(config).double().eval()
    tensors, parts = dict(model.named_parameters()), parameters_of(model, kind)
    draw = torch.tensor([[splitmix64((77 << 32) + b * (S + 1) + i) % V for i in range(S + 1)] for b in range(B)])
    nll = nll_of(model, kind, draw)
    case = {"name": f"{kind}_{rope}_{'tied' if tied else 'untied'}", "config": saved_config(model),
            "tokens": draw.tolist(), "nll": nll.tolist(), "gradients": []}
    if gradients:
        case["name"] += "_gradients"
        nll.mean().backward()
        case["gradients"] = [{"name": name, "values": part(tensors[theirs].grad).flatten().tolist()}
                             for name, theirs, part in parts]
    return case


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    compute_in_double()
    cases = []
    for kind in CLASSES:
        ropes = {"phi3": PHI3_ROPES, "gpt2": ["default"]}.get(kind, LATER_ROPES if kind in LATER else ROPES)
        for rope in ropes:
            for tied in (True, False):
                cases.append(make_case(kind, rope, tied, L, False))
        rope = {"llama": "llama3", "mistral": "linear", "qwen2": "longrope_long", "qwen3": "yarn_keys",
                "olmo3": "yarn", "gemma3_text": "linear", "phi3": "longrope_long"}.get(kind, "default")
        mixed = kind in ("qwen2", "qwen3", "smollm3", "olmo3", "gemma2", "gemma3_text")
        cases.append(make_case(kind, rope, False, L if mixed else 1, True))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hugging_face.json")
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
    print(f"{len(cases)} cases, {os.path.getsize(path)} bytes")
