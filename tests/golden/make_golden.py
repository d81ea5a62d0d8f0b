#!/usr/bin/env python3
"""Writes the golden numbers of tests/layers/golden_test.cpp: small models in plain PyTorch, in double, from
full attention matrices and autograd; loss, nll of every token and the gradient of every parameter.

Run as `python make_golden.py` with any PyTorch; it writes to its own folder. Neither the build nor the tests need it.
Inputs and weights come from splitmix64, so the test makes the same weights without reading them. Nothing here follows
the C++ sources: rotary scaling follows Hugging Face's modeling_rope_utils, and the models follow modeling_llama,
modeling_qwen2, modeling_qwen3, and modeling_gpt2 (with separate q, k, v projections). ../models/transformers_matrix.py
compares the programs with Hugging Face's own classes."""
import json
import math
import os

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
MASK64 = (1 << 64) - 1

# The differences between the architectures: biases of q, k, v and of the other projections, RMSNorm of each head of q
# and k.
LLAMA = {"gpt2": False, "qkv_bias": False, "bias": False, "qk_norm": False}
TRAITS = {"llama": LLAMA, "mistral": LLAMA, "gpt2": {**LLAMA, "gpt2": True, "qkv_bias": True, "bias": True},
          "qwen2": {**LLAMA, "qkv_bias": True}, "qwen3": {**LLAMA, "qk_norm": True}}


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def uniform(stream, index):
    """A number in [-1, 1), exact in double: the test has the same function."""
    return (splitmix64((stream << 32) + index) >> 11) * 2.0**-52 - 1.0


def compute_in_double():
    """Makes "float32" mean float64: transformers computes norms and rotary angles in float32 for any model's dtype."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


def weight(stream, name, shape):
    """Matrices: +-0.35; biases: +-0.1; norms: 1 +- 0.1. stream: the parameter's index in the list."""
    count = math.prod(shape)
    u = torch.tensor([uniform(stream, i) for i in range(count)]).reshape(shape)
    if name.endswith("norm.weight"):
        return 1.0 + 0.1 * u
    return (0.1 if name.endswith(".bias") else 0.35) * u


def parameter_shapes(c):
    """(name, shape) in the order of the model."""
    traits = TRAITS[c["architecture"]]
    gpt2 = traits["gpt2"]
    C, FF, V, D = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["head_dim"]
    Q, K = c["num_attention_heads"] * D, c["num_key_value_heads"] * D
    shapes = [("model.embed_tokens.weight", (V, C))]
    if gpt2:
        shapes.append(("model.embed_positions.weight", (c["max_position_embeddings"], C)))

    def linear(name, rows, columns, bias=traits["bias"]):
        shapes.append((name + ".weight", (rows, columns)))
        if bias:
            shapes.append((name + ".bias", (rows,)))

    def norm(name):
        shapes.append((name + ".weight", (C,)))
        if gpt2:
            shapes.append((name + ".bias", (C,)))

    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        norm(p + "input_layernorm")
        linear(p + "self_attn.q_proj", Q, C, traits["qkv_bias"])
        linear(p + "self_attn.k_proj", K, C, traits["qkv_bias"])
        linear(p + "self_attn.v_proj", K, C, traits["qkv_bias"])
        linear(p + "self_attn.o_proj", C, Q)
        if traits["qk_norm"]:
            shapes.append((p + "self_attn.q_norm.weight", (D,)))
            shapes.append((p + "self_attn.k_norm.weight", (D,)))
        norm(p + "post_attention_layernorm")
        if not gpt2:
            linear(p + "mlp.gate_proj", FF, C)
        linear(p + "mlp.up_proj", FF, C)
        linear(p + "mlp.down_proj", C, FF)
    norm("model.norm")
    if not c["tie_word_embeddings"]:
        shapes.append(("lm_head.weight", (V, C)))
    return shapes


def inverse_frequencies(c):
    D, base, scaling = c["head_dim"], c["rope_theta"], c["rope_scaling"]
    kind, factor = scaling["type"], scaling.get("factor", 1.0)
    if kind == "ntk":
        base = base * factor ** (D / (D - 2))
    inverse = 1.0 / base ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    if kind == "linear":
        return inverse / factor, 1.0
    if kind != "yarn":
        return inverse, 1.0
    original = scaling["original_max_position_embeddings"]

    def correction_dim(rotations):
        return D * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction_dim(32)), 0)
    high = min(math.ceil(correction_dim(1)), D - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(D // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    extrapolated = 1 - ramp
    return inverse / factor * (1 - extrapolated) + inverse * extrapolated, 0.1 * math.log(factor) + 1.0


def rotate(x, positions, c):
    """x[B, S, heads, D], pairs (i, i + D/2)."""
    inverse, magnitude = inverse_frequencies(c)
    angles = positions[:, :, None, None].double() * inverse
    cos = torch.cat([angles.cos(), angles.cos()], -1) * magnitude
    sin = torch.cat([angles.sin(), angles.sin()], -1) * magnitude
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def normalize(x, w, name, c):
    if TRAITS[c["architecture"]]["gpt2"]:
        return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w[name + ".bias"], c["rms_norm_eps"])
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name + ".weight"]


def model_nll(c, data, w):
    B, S = data["tokens"].shape
    H, G, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    traits = TRAITS[c["architecture"]]
    gpt2 = traits["gpt2"]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    place = torch.arange(S)  # visibility follows the index in the sequence, rotation the position in the document
    seen = (place[:, None] >= place[None, :])[None] & (data["documents"][:, :, None] == data["documents"][:, None, :])
    if c["sliding_window"]:
        seen = seen & (place[:, None] - place[None, :] < c["sliding_window"])[None]

    x = w["model.embed_tokens.weight"][data["tokens"]]
    if gpt2:
        x = x + w["model.embed_positions.weight"][data["positions"]]
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = normalize(x, w, p + "input_layernorm", c)
        q = linear(h, p + "self_attn.q_proj").view(B, S, H, D)
        k = linear(h, p + "self_attn.k_proj").view(B, S, G, D)
        v = linear(h, p + "self_attn.v_proj").view(B, S, G, D)
        if traits["qk_norm"]:  # over the D elements of a head
            q, k = normalize(q, w, p + "self_attn.q_norm", c), normalize(k, w, p + "self_attn.k_norm", c)
        if not gpt2:
            q, k = rotate(q, data["positions"], c), rotate(k, data["positions"], c)
        k, v = k.repeat_interleave(H // G, 2), v.repeat_interleave(H // G, 2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D)
        scores = scores.masked_fill(~seen[:, None], float("-inf"))
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).reshape(B, S, H * D)
        x = x + linear(mixed, p + "self_attn.o_proj")
        h = normalize(x, w, p + "post_attention_layernorm", c)
        up = linear(h, p + "mlp.up_proj")
        inner = F.gelu(up, approximate="tanh") if gpt2 else F.silu(linear(h, p + "mlp.gate_proj")) * up
        x = x + linear(inner, p + "mlp.down_proj")
    x = normalize(x, w, "model.norm", c)
    head = w["model.embed_tokens.weight"] if c["tie_word_embeddings"] else w["lm_head.weight"]
    logits = F.linear(x, head)
    nll = F.cross_entropy(logits.reshape(B * S, -1), data["labels"].reshape(-1), reduction="none", ignore_index=-1)
    return nll.view(B, S)


def make_data(c, B, S, boundaries):
    """boundaries: the starts of the documents of each sequence; [] for one document and no document ids."""
    V = c["vocab_size"]
    draw = lambda stream, b, i, n: int(splitmix64((stream << 32) + b * (S + 1) + i) % n)
    stream = [[draw(1000, b, i, V) for i in range(S + 1)] for b in range(B)]
    data = {"tokens": [row[:S] for row in stream], "labels": [row[1:] for row in stream],
            "weights": [[draw(1001, b, i, 5) / 4 for i in range(S)] for b in range(B)]}
    data["documents"] = [[sum(s <= i for s in boundaries[b]) if boundaries else 0 for i in range(S)] for b in range(B)]
    data["positions"] = [[i - max([s for s in (boundaries[b] if boundaries else []) if s <= i] + [0]) for i in range(S)]
                         for b in range(B)]
    for b in range(B):
        for i in range(S):
            last_of_document = boundaries and i + 1 < S and data["documents"][b][i + 1] != data["documents"][b][i]
            if last_of_document or draw(1002, b, i, 11) == 0:
                data["labels"][b][i] = -1
    return data


def write_case(name, c, B, S, boundaries=()):
    data = make_data(c, B, S, boundaries)
    tensors = {key: torch.tensor(value, dtype=torch.float64 if key == "weights" else torch.int64)
               for key, value in data.items()}
    shapes = parameter_shapes(c)
    w = {n: weight(i, n, shape).requires_grad_() for i, (n, shape) in enumerate(shapes)}
    nll = model_nll(c, tensors, w)
    valid = (tensors["labels"] >= 0).double() * tensors["weights"]
    loss_sum, denominator = (valid * nll).sum(), valid.sum()
    (loss_sum / denominator).backward()
    result = {"config": c, "documents_present": bool(boundaries), "data": data, "denominator": denominator.item(),
              "loss_sum": loss_sum.item(), "nll": nll.tolist(),
              "parameters": [{"name": n, "shape": list(shape), "gradient": w[n].grad.flatten().tolist()}
                             for n, shape in shapes]}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".json")
    with open(path, "w") as file:
        json.dump(result, file, separators=(",", ":"))
        file.write("\n")
    print(f"{name}: loss {(loss_sum / denominator).item():.12f}, {sum(math.prod(s) for _, s in shapes)} parameters, "
          f"{os.path.getsize(path)} bytes")


def llama(**changes):
    c = {"architecture": "llama", "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 14, "rope_theta": 10000.0,
         "rope_scaling": {"type": "none"}, "max_position_embeddings": 0, "sliding_window": 0, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": True}
    c.update(changes)
    return c


if __name__ == "__main__":
    documents = [[5, 6, 17], [11]]
    write_case("llama_tied_documents", llama(), 2, 23, documents)
    write_case("llama_untied_window", llama(tie_word_embeddings=False, sliding_window=7, num_key_value_heads=1), 2, 22)
    write_case("llama_yarn", llama(num_hidden_layers=1, head_dim=16, rope_theta=500.0, num_attention_heads=2,
                                   rope_scaling={"type": "yarn", "factor": 4.0,
                                                 "original_max_position_embeddings": 64}), 1, 26)
    write_case("llama_linear", llama(num_hidden_layers=1, rope_scaling={"type": "linear", "factor": 2.5}), 1, 19)
    write_case("llama_ntk_window_documents",
               llama(num_hidden_layers=1, sliding_window=5, rope_scaling={"type": "ntk", "factor": 3.0}), 2, 18,
               [[3, 9], [14]])
    write_case("gpt2_tied_documents",
               llama(architecture="gpt2", hidden_size=15, num_attention_heads=3, num_key_value_heads=3, head_dim=5,
                     intermediate_size=21, max_position_embeddings=30, rope_theta=500000.0), 2, 23, documents)
    write_case("gpt2_untied",
               llama(architecture="gpt2", hidden_size=10, num_hidden_layers=1, num_attention_heads=2,
                     num_key_value_heads=2, head_dim=4, intermediate_size=17, max_position_embeddings=25,
                     tie_word_embeddings=False, rope_theta=500000.0), 1, 25)
    write_case("mistral_untied_window",
               llama(architecture="mistral", tie_word_embeddings=False, num_hidden_layers=1, sliding_window=6), 1, 24)
    write_case("qwen2_tied_documents", llama(architecture="qwen2", rms_norm_eps=1e-6), 2, 23, documents)
    write_case("qwen2_untied_window",
               llama(architecture="qwen2", num_hidden_layers=1, num_key_value_heads=1, tie_word_embeddings=False,
                     sliding_window=7, rope_theta=1e6), 1, 22)
    write_case("qwen3_tied_documents", llama(architecture="qwen3", rms_norm_eps=1e-6), 2, 23, documents)
    write_case("qwen3_untied_yarn_window",
               llama(architecture="qwen3", num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                     head_dim=16, tie_word_embeddings=False, sliding_window=9, rope_theta=500.0,
                     rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}), 1, 26)
