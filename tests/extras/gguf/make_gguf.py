#!/usr/bin/env python3
"""Makes tests/extras/gguf/model: a tiny random Llama as llama.cpp stores it, with a tensor of each type that is read,
and what transformers computes with the same numbers in float64.

Run as `python make_gguf.py` with NumPy, PyTorch and transformers; neither the build nor the tests need it."""
import json
import os
import pathlib
import struct
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "models"))
import make_folders  # noqa: E402  (the path above comes first)

V, C, H, G, D, F, L = make_folders.VOCABULARY, 32, 4, 2, 8, 64, 2
TYPES = {"attn_q": "Q4_1", "attn_k": "Q4_0", "attn_v": "Q8_0", "attn_output": "F16", "ffn_gate": "BF16",
         "ffn_up": "Q4_1", "ffn_down": "Q8_0"}
NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}


def quantize(values, kind):
    """Returns the bytes of a tensor, and the numbers that they stand for."""
    flat = values.reshape(-1, 32)
    if kind == "F32":
        stored = flat.astype("<f4")
        return stored.tobytes(), stored
    if kind == "F16":
        stored = flat.astype("<f2")
        return stored.tobytes(), stored
    if kind == "BF16":
        bits = (flat.astype("<f4").view("<u4") >> 16).astype("<u2")  # cut, not rounded: any number will do
        return bits.tobytes(), (bits.astype("<u4") << 16).view("<f4")
    if kind == "Q8_0":
        scale = (np.abs(flat).max(axis=1, keepdims=True) / 127).astype("<f2")
        numbers = np.clip(np.rint(flat / scale.astype(float)), -127, 127).astype("i1")
        return np.concatenate([scale.view("u1"), numbers.view("u1")], axis=1).tobytes(), scale.astype(float) * numbers
    low = flat.min(axis=1, keepdims=True).astype("<f2")
    if kind == "Q4_1":
        scale = ((flat.max(axis=1, keepdims=True) - low.astype(float)) / 15).astype("<f2")
        numbers = np.clip(np.rint((flat - low.astype(float)) / scale.astype(float)), 0, 15).astype("u1")
        exact, head = scale.astype(float) * numbers + low.astype(float), [scale.view("u1"), low.view("u1")]
    else:
        scale = (np.abs(flat).max(axis=1, keepdims=True) / 7).astype("<f2")
        numbers = np.clip(np.rint(flat / scale.astype(float)) + 8, 0, 15).astype("u1")
        exact, head = scale.astype(float) * (numbers.astype(float) - 8), [scale.view("u1")]
    return np.concatenate([*head, numbers[:, :16] | numbers[:, 16:] << 4], axis=1).tobytes(), exact


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(item) for item in value)
    return text(key) + struct.pack("<II", 4, value)


def write_gguf(path, metadata, tensors):
    """tensors: name to (type, shape, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(key, value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], NUMBERS[kind], len(data))
        data += content + bytes(-len(content) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def main():
    folder = HERE / "model"
    os.makedirs(folder, exist_ok=True)
    random = np.random.default_rng(3)
    shapes = {"token_embd": (V, C), "output_norm": (C,), "output": (V, C)}
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    modules = {"attn_norm": ("input_layernorm", (C,)), "attn_q": ("self_attn.q_proj", (H * D, C)),
               "attn_k": ("self_attn.k_proj", (G * D, C)), "attn_v": ("self_attn.v_proj", (G * D, C)),
               "attn_output": ("self_attn.o_proj", (C, H * D)), "ffn_norm": ("post_attention_layernorm", (C,)),
               "ffn_gate": ("mlp.gate_proj", (F, C)), "ffn_up": ("mlp.up_proj", (F, C)),
               "ffn_down": ("mlp.down_proj", (C, F))}
    for layer in range(L):
        for module, (theirs, shape) in modules.items():
            shapes[f"blk.{layer}.{module}"] = shape
            names[f"blk.{layer}.{module}"] = f"model.layers.{layer}.{theirs}"
    tensors, state = {}, {}
    for name, shape in shapes.items():
        kind = TYPES.get(name.rsplit(".", 1)[-1], "F32")
        values = random.normal(size=shape) * 0.2 + (len(shape) == 1)
        content, exact = quantize(values, kind)
        tensors[name + ".weight"] = (kind, shape, content)
        exact = np.asarray(exact, dtype=np.float64).reshape(shape)
        heads = {"attn_q": H, "attn_k": G}.get(name.rsplit(".", 1)[-1])
        if heads:
            exact = exact.reshape(heads, D // 2, 2, C).swapaxes(1, 2).reshape(shape)
        state[names[name] + ".weight"] = torch.tensor(exact)
    metadata = {"general.architecture": "llama", "general.name": "tiny", "llama.block_count": L,
                "llama.context_length": 128, "llama.embedding_length": C, "llama.feed_forward_length": F,
                "llama.attention.head_count": H, "llama.attention.head_count_kv": G,
                "llama.attention.layer_norm_rms_epsilon": 0.0009765625, "llama.rope.freq_base": 50000.0,
                "llama.rope.dimension_count": D, "llama.vocab_size": V, "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": [f"t{i}" for i in range(V)], "tokenizer.ggml.eos_token_id": V - 1}
    write_gguf(os.path.join(folder, "model.gguf"), metadata, tensors)
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    config = transformers.LlamaConfig(vocab_size=V, hidden_size=C, intermediate_size=F, num_hidden_layers=L,
                                      num_attention_heads=H, num_key_value_heads=G, max_position_embeddings=128,
                                      rms_norm_eps=0.0009765625, rope_theta=50000.0)
    result = make_folders.nll_of(transformers.LlamaForCausalLM, config, state)
    with open(os.path.join(folder, "expected.json"), "w") as file:
        file.write(json.dumps({"dtype": "mixed", **result}) + "\n")
    print(result["nll"])


if __name__ == "__main__":
    main()
