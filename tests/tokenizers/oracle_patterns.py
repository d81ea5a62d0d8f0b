"""The splittings of the known families, as in tokenizer.json: normalizer, pre_tokenizer, members of the model."""

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN36 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = PREFIX + UPPER + "*" + LOWER + "+|" + PREFIX + UPPER + "+" + LOWER + r"*|\p{N}" + REST
O200K = (PREFIX + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + PREFIX + UPPER + "+" + LOWER + "*" + CONTRACTIONS
         + r"?|\p{N}{1,3}" + REST)
# A pattern that is not of a known family, with everything that rewriting \s must not break.
OTHER = r"\p{N}{1,2}|[\s]*[\r\n]|[^\s\p{N}]+|\s+(?!\S)|\s"

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False):
    one = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}
    return {"type": "Sequence", "pretokenizers": [one, BYTE_LEVEL]}


PRE_TOKENIZERS = {
    "gpt2": (None, {**BYTE_LEVEL, "use_regex": True}, {}),
    "gpt2, space in front": (None, {**BYTE_LEVEL, "use_regex": True, "add_prefix_space": True}, {}),
    "no splitting": (None, BYTE_LEVEL, {}),
    "smollm": (None, {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}]}, {}),
    "digits": (None, {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": False}, {**BYTE_LEVEL, "use_regex": True}]}, {}),
    "llama3": (None, split(LLAMA3), {"ignore_merges": True}),
    "llama3, inverted": (None, split(LLAMA3, "Removed", True), {}),
    "qwen2": ({"type": "NFC"}, split(QWEN2), {}),
    "qwen36": ({"type": "NFC"}, split(QWEN36), {}),
    "tekken": (None, split(TEKKEN), {}),
    "o200k": (None, split(O200K), {}),
    "other": (None, split(OTHER), {}),
}
