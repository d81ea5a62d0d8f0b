#!/usr/bin/env python3
"""Makes tests/extras/gguf/model/model.gguf: a tiny random Llama as llama.cpp stores it, with a tensor of each supported
type. Run as `python make_gguf.py` with NumPy; neither the build nor the tests need it."""
import pathlib
import struct

import numpy as np

V, C, H, G, D, F, L = 48, 32, 4, 2, 8, 64, 2
TYPES = {"attn_q": "Q4_1", "attn_k": "Q4_0", "attn_v": "Q8_0", "attn_output": "F16", "ffn_gate": "BF16",
         "ffn_up": "Q4_1", "ffn_down": "Q8_0"}
NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}


def quantized(values, kind):
    """Returns the bytes of a tensor."""
    flat = values.reshape(-1, 32)
    if kind in ("F32", "F16"):
        return flat.astype("<f4" if kind == "F32" else "<f2").tobytes()
    if kind == "BF16":
        return (flat.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()  # cut, not rounded: any number will do
    if kind == "Q8_0":
        scale = (np.abs(flat).max(axis=1, keepdims=True) / 127).astype("<f2")
        numbers = np.clip(np.rint(flat / scale.astype(float)), -127, 127).astype("i1")
        return np.concatenate([scale.view("u1"), numbers.view("u1")], axis=1).tobytes()
    if kind == "Q4_1":
        low = flat.min(axis=1, keepdims=True).astype("<f2")
        scale = ((flat.max(axis=1, keepdims=True) - low.astype(float)) / 15).astype("<f2")
        numbers = np.clip(np.rint((flat - low.astype(float)) / scale.astype(float)), 0, 15).astype("u1")
        head = [scale.view("u1"), low.view("u1")]
    else:
        scale = (np.abs(flat).max(axis=1, keepdims=True) / 7).astype("<f2")
        numbers = np.clip(np.rint(flat / scale.astype(float)) + 8, 0, 15).astype("u1")
        head = [scale.view("u1")]
    return np.concatenate([*head, numbers[:, :16] | numbers[:, 16:] << 4], axis=1).tobytes()


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
    random = np.random.default_rng(3)
    shapes = {"token_embd": (V, C), "output_norm": (C,), "output": (V, C)}
    for layer in range(L):
        for module, shape in (("attn_norm", (C,)), ("attn_q", (H * D, C)), ("attn_k", (G * D, C)),
                              ("attn_v", (G * D, C)), ("attn_output", (C, H * D)), ("ffn_norm", (C,)),
                              ("ffn_gate", (F, C)), ("ffn_up", (F, C)), ("ffn_down", (C, F))):
            shapes[f"blk.{layer}.{module}"] = shape
    tensors = {}
    for name, shape in shapes.items():
        kind = TYPES.get(name.rsplit(".", 1)[-1], "F32")
        values = random.normal(size=shape) * 0.2 + (len(shape) == 1)
        tensors[name + ".weight"] = (kind, shape, quantized(values, kind))
    metadata = {"general.architecture": "llama", "general.name": "tiny", "llama.block_count": L,
                "llama.context_length": 128, "llama.embedding_length": C, "llama.feed_forward_length": F,
                "llama.attention.head_count": H, "llama.attention.head_count_kv": G,
                "llama.attention.layer_norm_rms_epsilon": 0.0009765625, "llama.rope.freq_base": 50000.0,
                "llama.rope.dimension_count": D, "llama.vocab_size": V, "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": [f"t{i}" for i in range(V)], "tokenizer.ggml.eos_token_id": V - 1}
    write_gguf(pathlib.Path(__file__).parent / "model" / "model.gguf", metadata, tensors)


if __name__ == "__main__":
    main()
