"""What the tests of extras/python share: the package's path, and tokenizers made for a test."""
import json
import os
import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "extras/python"))
import environment  # noqa: E402

environment.use()
try:
    import h5py
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
    import tokenizers  # noqa: F401
    import transformers
    import xxhash  # noqa: F401
except ImportError as missing:
    environment.skip(missing)
transformers.logging.set_verbosity_error()
DOCUMENT_END = "<|document|>"


def make_tokenizer(folder, special, template=None, bos="", eos="", begins="", ends="", base="byte_level.json"):
    """Write a small tokenizer with these special tokens, and DOCUMENT_END. begins, ends: tokens around each text."""
    tokenizer = json.loads((ROOT / "tests/tokenizers/tiny" / base).read_text("utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    following = 1 + max([*vocabulary.values(), *(token["id"] for token in tokenizer["added_tokens"])])
    there = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    for content in [*special, DOCUMENT_END]:
        if content not in there:
            there[content], following = following, following + 1
            tokenizer["added_tokens"].append(
                {"id": there[content], "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True})
    if begins or ends:
        before, after = ([{"SpecialToken": {"id": one, "type_id": 0}}] if one else [] for one in (begins, ends))
        text, pair = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", 1)))
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [*before, text, *after], "pair": [*before, text, *after, pair],
            "special_tokens": {one: {"id": one, "ids": [there[one]], "tokens": [one]} for one in (begins, ends) if one}}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    named = {"bos_token": bos, "eos_token": eos, "chat_template": template}
    config |= {key: value for key, value in named.items() if value}
    os.makedirs(folder, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        pathlib.Path(folder, name).write_text(json.dumps(content), "utf-8")
    return str(folder)


def read_tokens(path):
    """Return the content of a token file: for each document its ids and weights, and the manifest."""
    manifest = json.loads(pathlib.Path(f"{path}.manifest.json").read_text("utf-8"))
    with h5py.File(path) as file:
        tokens, offsets = file["tokens"][:].tolist(), file["document_offsets"][:].tolist()
        weights = file["weights"][:].tolist() if "weights" in file else [1.0] * len(tokens)
    parts = list(zip(offsets, offsets[1:]))
    return [tokens[a:b] for a, b in parts], [weights[a:b] for a, b in parts], manifest
