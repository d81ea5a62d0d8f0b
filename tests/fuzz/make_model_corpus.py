#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/safetensors, generate, and adapters: small files, assembled byte by byte, and models of
tests/models/folders."""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
FOLDERS = pathlib.Path(__file__).parent.parent / "models" / "folders"


def safetensors(name, header, data):
    head = header.encode()
    (CORPUS / "safetensors" / name).write_bytes(struct.pack("<Q", len(head)) + head + bytes(data))


safetensors("two", '{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
                   '"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}', 22)
safetensors("empty", "{}", 0)
safetensors("types", '{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[4],'
                     '"data_offsets":[8,10]},"c":{"dtype":"F64","shape":[0,3],"data_offsets":[10,10]}}   ', 10)


# Whole models, as small as possible, so that a mutation rarely hits a weight: 6 tokens, 1 layer, 2 heads of 2 elements.
V, C, F, P = 6, 4, 8, 16


def values(count):
    """Returns some weights, as float32."""
    return struct.pack(f"<{count}f", *(((7 * i) % 13 - 6) / 8 for i in range(count)))


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def folder(kind, name, config, tensors):
    header, data = {}, b""
    for key, shape in tensors.items():
        start = len(data)
        data += values(elements(shape))
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    head = json.dumps(header, separators=(",", ":")).encode()
    model = struct.pack("<Q", len(head)) + head + data
    (CORPUS / kind / name).write_bytes(json.dumps(config).encode() + b"\0" + model)


def packed(name, begin):
    """Converts a folder of the tests to an input."""
    source = FOLDERS / name
    config = json.loads((source / "config.json").read_text())
    config["bos_token_id"] = begin
    model = (source / "model.safetensors").read_bytes()
    (CORPUS / "generate" / name).write_bytes(json.dumps(config).encode() + b"\0" + model)


llama = {"model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": F, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": P, "bos_token_id": 1,
         "eos_token_id": [2, 3]}
layer = {"input_layernorm": [C], "self_attn.q_proj": [C, C], "self_attn.k_proj": [2, C], "self_attn.v_proj": [2, C],
         "self_attn.o_proj": [C, C], "post_attention_layernorm": [C], "mlp.gate_proj": [F, C], "mlp.up_proj": [F, C],
         "mlp.down_proj": [C, F]}
ends = {"model.embed_tokens.weight": [V, C], "model.norm.weight": [C], "lm_head.weight": [V, C]}
folder("generate", "tiny_llama", llama, ends | {f"model.layers.0.{key}.weight": shape for key, shape in layer.items()})
gpt2 = {"model_type": "gpt2", "vocab_size": V, "n_embd": C, "n_layer": 1, "n_head": 2, "n_positions": P,
        "bos_token_id": 1, "eos_token_id": 2}
layer = {"ln_1.weight": [C], "ln_1.bias": [C], "attn.c_attn.weight": [C, 3 * C], "attn.c_attn.bias": [3 * C],
         "attn.c_proj.weight": [C, C], "attn.c_proj.bias": [C], "ln_2.weight": [C], "ln_2.bias": [C],
         "mlp.c_fc.weight": [C, 4 * C], "mlp.c_fc.bias": [4 * C], "mlp.c_proj.weight": [4 * C, C],
         "mlp.c_proj.bias": [C]}
ends = {"wte.weight": [V, C], "wpe.weight": [P, C], "ln_f.weight": [C], "ln_f.bias": [C]}
folder("generate", "tiny_gpt2", gpt2, {f"transformer.{key}": shape for key, shape in ends.items()}
       | {f"transformer.h.0.{key}": shape for key, shape in layer.items()})
packed("llama_tied", 1)
packed("qwen2", 0)


def adapters(name, config, saved):
    """Writes adapters of rank 2 next to the tiny llama, which is the base of fuzz_adapters, and whole tensors."""
    sizes = {"self_attn.q_proj": C, "self_attn.v_proj": 2}
    tensors = {}
    for key, out in sizes.items():
        tensors[f"base_model.model.model.layers.0.{key}.lora_A.weight"] = [2, C]
        tensors[f"base_model.model.model.layers.0.{key}.lora_B.weight"] = [out, 2]
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]} | config
    folder("adapters", name, config, tensors | {f"base_model.model.{key}": shape for key, shape in saved.items()})


adapters("tiny", {"base_model_name_or_path": "someone/base"}, {})
adapters("saved", {"base_model_name_or_path": "base", "use_rslora": True, "modules_to_save": ["model.norm", "lm_head"]},
         {"model.norm.weight": [C], "lm_head.weight": [V, C]})
adapters("of_themselves", {"base_model_name_or_path": "someone/adapters", "bias": "none", "use_dora": False}, {})
