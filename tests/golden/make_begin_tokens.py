#!/usr/bin/env python3
"""Makes tests/golden/begin_tokens.json: the ids of transformers' AutoTokenizer for texts, with the tokenizers of
tests/tokenizers/tiny and post-processors that add tokens before and after a text.

Run as `python make_begin_tokens.py` with transformers; neither the build nor the tests need it."""
import json
import pathlib
import tempfile

import transformers

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = ["the testing of the rest", " a space in front", "two\nlines\n", "<s>the</s> <|endoftext|>", "caf\u00e9", "a"]


def template(before, after):
    special = [*before, *after]
    return {
        "type": "TemplateProcessing",
        "single": [*({"SpecialToken": {"id": name, "type_id": 0}} for name, _ in before),
                   {"Sequence": {"id": "A", "type_id": 0}},
                   *({"SpecialToken": {"id": name, "type_id": 0}} for name, _ in after)],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in special},
    }


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
BEGIN, END, TEXT_END = ("<s>", 1), ("</s>", 2), ("<|endoftext|>", 0)
CASES = [
    ("byte_level", None),
    ("byte_level", BYTE_LEVEL),
    ("byte_level", template([TEXT_END], [])),
    ("byte_level", {"type": "Sequence", "processors": [BYTE_LEVEL, template([TEXT_END], [])]}),
    ("sentencepiece", template([BEGIN], [])),
    ("sentencepiece", template([BEGIN], [END])),
    ("sentencepiece", template([], [END])),
    ("sentencepiece", {"type": "BertProcessing", "sep": END, "cls": BEGIN}),
    ("byte_level", {"type": "RobertaProcessing", "sep": TEXT_END, "cls": TEXT_END, "trim_offsets": True,
                    "add_prefix_space": False}),
]


def ids_of(name, post_processor):
    with open(HERE.parent / "tokenizers" / "tiny" / f"{name}.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokenizer["post_processor"] = post_processor
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, file)
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
    # Special tokens within a text are its letters, as in prepare.
    return [loaded(text, split_special_tokens=True)["input_ids"] for text in TEXTS]


if __name__ == "__main__":
    cases = [{"tokenizer": name, "post_processor": post, "ids": ids_of(name, post)} for name, post in CASES]
    with open(HERE / "begin_tokens.json", "w", encoding="utf-8") as out:
        out.write(json.dumps({"transformers": transformers.__version__, "texts": TEXTS, "cases": cases}) + "\n")
