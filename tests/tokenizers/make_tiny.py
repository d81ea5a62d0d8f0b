#!/usr/bin/env python3
"""Makes the small tokenizers of the tests, and the reference programs' ids for difficult texts.

    make_tiny.py    (needs the packages tokenizers and sentencepiece; writes tests/tokenizers/tiny/)

byte_level.json is a byte-level BPE of 600 tokens; golden.json has its ids under the splitting of each known family, and
under one that is not of a known family. sentencepiece.json is a SentencePiece BPE of 700 pieces with byte fallback, as
a converter writes it; golden.json also has SentencePiece's own ids.
"""
import json
import pathlib
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import oracle_patterns  # noqa: E402
import packages  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent / "tiny"
TRAINING = [(packages.ROOT / name).read_text(encoding="utf-8")
            for name in ("README.md", "docs/architecture.md", "docs/usage.md", "CONTRIBUTING.md")]
TRAINING += ["Việt Nam Straße naïve café 中文文本 日本語 한국어 привет мир שלום 1234 5678 \r\n\r\n"
             "    if (x) {\n\t\treturn 'y';\n"] * 20

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  ", "\n", "\n\n", " \n \n x", "a\r\nb\rc\n\n\nd", "\t\tx\t y", "hello world",
    "Hello  world", "   leading", "trailing   ", "it's IT'S we'll We'LL I'm I'M they've 'tis 'S 'ſ", "don't'd've",
    "1234567", "3.14159 12,345 ½²Ⅷ٣", "foo_bar CamelCase HTMLParser XMLHttpRequest iPhone ǅ ʰa", "C++20: a->b(c[0]);//x",
    "/usr/include/c++/12/\n/bits", "---\n***\n\n===", "\u0000a\u0000", "a\u0085b\u2028c\u00a0d\u3000e",
    "x\u180ey \u180ez", "\ufefftext\u200bzero", "e\u0301 \u0301a a\u0308b e\u0301\u0301 ", "\u00e9\u00c5\u212b \ufb01",
    "\u1100\u1161\u11a8 \uac01 \u1161", "क्षि ก็ عَرَبِيّ", "中文，文本。日本語の テキスト", "👨‍👩‍👧 🇩🇪 😀😀", "\U00020000\U0001d400",
    "ABC\u0301def", "\u0301ABC", "\u0301", " \u0301x", "ａＢ", "a" * 100, "ab" * 60, " " * 50 + "x", "\n" * 9,
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|> x", "the <tool> tool", "\u2581x \u2581 y", "▁▁", "Việt", " Việt",
    "The quick brown fox jumps over the lazy dog. 0x1F600 + 42 = ?",
    "def f(x):\n    if x > 1:\n        return x * f(x - 1)\n\n    return 1\n",
]


def main():
    FOLDER.mkdir(exist_ok=True)
    reference = tokenizers.Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|endoftext|>"], show_progress=False)
    reference.train_from_iterator(TRAINING, trainer)
    reference.add_tokens(["<tool>"])
    content = json.loads(reference.to_str())
    (FOLDER / "byte_level.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    cases = []
    for name, (normalizer, pre_tokenizer, extra) in oracle_patterns.PRE_TOKENIZERS.items():
        changed = {**content, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
                   "model": {**content["model"], **extra}}
        other = tokenizers.Tokenizer.from_str(json.dumps(changed))
        ids = {}
        for special in ("text", "parse") if name == "gpt2" else ("text",):
            other.encode_special_tokens = special == "text"
            ids[special] = [other.encode(text, add_special_tokens=False).ids for text in TEXTS]
        cases.append({"name": name, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": extra, **ids})

    model = FOLDER / "sentencepiece.model"
    text = FOLDER / "text"
    text.write_text("\n".join(line for part in TRAINING for line in part.split("\n")), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(FOLDER / "sentencepiece"), model_type="bpe", vocab_size=700,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
        allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2)
    text.unlink()
    (FOLDER / "sentencepiece.vocab").unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
    model.unlink()
    cases.append({"name": "SentencePiece", "text": [pieces.encode(text) for text in TEXTS]})
    converted = packages.of_pieces(proto.pieces)
    (FOLDER / "sentencepiece.json").write_text(json.dumps(converted, ensure_ascii=False) + "\n", encoding="utf-8")
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "split": False}
    forms = {"Prepend": (converted["normalizer"], None)}
    for scheme in ("first", "always", "never"):
        forms[f"Metaspace {scheme}"] = (None, {**metaspace, "prepend_scheme": scheme})
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    forms["Prepend nothing"] = (converted["normalizer"]["normalizers"][1], split)  # as in Gemma's files
    doubled = {"type": "Replace", "pattern": {"Regex": "\\A\u2581"}, "content": "\u2581\u2581"}
    forms["Prepend as transformers 5 writes it"] = (
        {"type": "Sequence", "normalizers": [converted["normalizer"]["normalizers"][1], doubled]},
        {"type": "Sequence", "pretokenizers": [{**metaspace, "prepend_scheme": "always"}]})
    forms["Metaspace split"] = (None, {**metaspace, "prepend_scheme": "first", "split": True})
    marked = [text.replace("<|endoftext|>", "</s>") for text in TEXTS]
    for name, (normalizer, pre_tokenizer) in forms.items():
        other = tokenizers.Tokenizer.from_str(
            json.dumps({**converted, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}))
        case = {"name": name, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": {}}
        for special_tokens in ("text", "parse"):
            other.encode_special_tokens = special_tokens == "text"
            case[special_tokens] = [other.encode(text, add_special_tokens=False).ids for text in marked]
        cases.append(case)
    (FOLDER / "golden.json").write_text(
        json.dumps({"texts": TEXTS, "marked_texts": marked, "cases": cases}, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases of {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
