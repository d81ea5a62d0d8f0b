#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/tokenizer and json_lines: small files of every form that these readers know. The files
are kept in the repository; this script is how they came about. (No Zstandard in Python's library: zstd packs it.)"""
import gzip
import json
import pathlib
import subprocess

corpus = pathlib.Path(__file__).parent / "corpus"


def tokenizer(name, pre_tokenizer, normalizer=None, **model):
    letters = [*map(chr, range(33, 127)), "\u0120", "\u010a"]
    merges = [["t", "h"], ["th", "e"], ["\u0120", "the"]]
    tokens = letters + ["".join(merge) for merge in merges]
    added = [{"id": len(tokens), "content": "<|x|>", "special": True, "lstrip": True}]
    content = {"version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
               "decoder": {"type": "ByteLevel"},
               "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, **model}}
    (corpus / "tokenizer" / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def main():
    for name in ("tokenizer", "json_lines"):
        (corpus / name).mkdir(parents=True, exist_ok=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": "\\p{N}|\\s+|[^\\s\\p{N}]+"}, "behavior": "Isolated"}
    tokenizer("gpt2", byte_level)
    tokenizer("digits", {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]})
    tokenizer("split", {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]},
              {"type": "NFC"}, ignore_merges=True)
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}
    content = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": metaspace,
               "model": {"type": "BPE", "unk_token": "?", "byte_fallback": True, "fuse_unk": True,
                         "vocab": {t: i for i, t in enumerate("?\u2581ab")}, "merges": []}}
    (corpus / "tokenizer" / "metaspace").write_text(json.dumps(content), encoding="utf-8")
    lines = b'{"text": "one\\u00e9"}\r\n\n{"messages": [{"role": "user", "content": "a"}]}\n{"text": 1}\n[]\n{"text": "b"}'
    (corpus / "json_lines" / "plain").write_bytes(lines)
    (corpus / "json_lines" / "gzip").write_bytes(gzip.compress(lines, mtime=0) + gzip.compress(b"\n{}", mtime=0))
    packed = subprocess.run(["zstd", "-q", "-c"], input=lines, capture_output=True, check=True).stdout
    (corpus / "json_lines" / "zstd").write_bytes(packed)


if __name__ == "__main__":
    main()
