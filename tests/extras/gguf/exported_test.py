#!/usr/bin/env python3
"""SentencePiece tokenizers inside GGUF files, converted: compares ids and decoded text with SentencePiece, for
ringtrain and for transformers with the folder that ringtrain_gguf makes.

    exported_test.py [--megabytes N] [--random N] [NAME]...

Needs the packages gguf, sentencepiece, tiktoken, and tokenizers, and the tokenizers' own packages from PyPI
(packages.py); if something is missing, the test is skipped with a message (exit 77). RINGTRAIN_BIN names the folder of
the programs; RINGTRAIN_PYTHON and RINGTRAIN_PYTHON_4 a Python with transformers 5, and one with 4 (default: this one).
"""
import os
import pathlib
import random
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "support"))
import environment  # noqa: E402

environment.use()
sys.dont_write_bytecode = True
sys.path[:0] = [str(TESTS / "extras" / "gguf"), str(TESTS / "tokenizers")]

import oracle_test as oracle  # noqa: E402  (the path above comes first; skips where packages are missing)
import packages  # noqa: E402
import pieces_file  # noqa: E402
import sentencepiece  # noqa: E402
from sentencepiece import sentencepiece_model_pb2  # noqa: E402

NAMES = ["mistral_v1.model", "mistral_v3.model"]
CONTROL, USER_DEFINED = 3, 4
# Reads documents, writes ids in the probe's form, and what decoding them gives in the form of documents.
TRANSFORMERS = """
import struct, sys
import transformers
folder, texts, ids, decoded = sys.argv[1:]
transformers.logging.set_verbosity_error()
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
assert type(tokenizer).__name__ in ("TokenizersBackend", "PreTrainedTokenizerFast"), type(tokenizer)
data, at, documents = open(texts, "rb").read(), 0, []
while at < len(data):
    size = struct.unpack_from("<I", data, at)[0]
    documents.append(data[at + 4:at + 4 + size].decode("utf-8"))
    at += 4 + size
with open(ids, "wb") as id_file, open(decoded, "wb") as text_file:
    for i in range(0, len(documents), 256):
        batch = tokenizer(documents[i:i + 256], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        for one in batch:
            id_file.write(struct.pack(f"<{len(one) + 1}i", 4 * len(one), *one))
            text = tokenizer.decode(one).encode("utf-8")
            text_file.write(struct.pack("<I", len(text)) + text)
print(transformers.__version__)
"""


def converted(name, folder):
    """Returns SentencePiece with a tokenizer's pieces, and the folder that is made of a GGUF file that holds them."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(packages.tokenizer(name).read_bytes())
    for piece in model.pieces:
        if piece.type == USER_DEFINED:
            piece.type = CONTROL  # as the converter does, since the model's own files call them special
    gguf, output = folder / (name + ".gguf"), folder / (name + ".converted")
    pieces = [(piece.piece, piece.score, piece.type) for piece in model.pieces]
    pieces_file.write(pieces, gguf, bos_token_id=1, eos_token_id=2)
    said = pieces_file.convert(gguf, output)
    assert said is None, said
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()), output


def run_texts():
    """Returns runs of one character, of every length, in several contexts."""
    contexts = ["{}", "{}x", "x{}", "x {} y", "{0}.{0}", "{0}\n{0}if"]
    return [context.format(character * length) for character in " a-=0\n\t.e\u3042\U0001f600" for context in contexts
            for length in range(1, 80)]


def any_texts(count):
    """Returns random strings of any code points, assigned or not, among spaces and the texts of special tokens."""
    draw = random.Random(5)
    known = [" ", "  ", "\u2581", "<s>", "</s>", "<unk>", "[INST]", "<0x0A>", "<0x", "a", "\n"]

    def character():
        if draw.random() < 0.5:
            return draw.choice(known)
        code = draw.randrange(draw.choice([0x80, 0x800, 0x3000, 0x10000, 0x110000]))
        return chr(code) if not 0xD800 <= code <= 0xDFFF else "\ufffd"

    return ["".join(character() for _ in range(draw.randrange(1, 40))) for _ in range(count)]


def programs(output, folder):
    """Yields names of who gives ids for the packed texts, and whether they have decoded them, too."""
    texts, ids, decoded = folder / "texts", folder / "ids", folder / "decoded"
    subprocess.run([oracle.BIN / "tokenizer_probe", "encode", output, texts, ids], check=True, capture_output=True)
    yield "ringtrain", False
    for python in dict.fromkeys([sys.executable, os.environ.get("RINGTRAIN_PYTHON_4", sys.executable)]):
        if subprocess.run([python, "-c", "import transformers"], capture_output=True).returncode != 0:
            print(f"  {python} has no transformers: left out")
            continue
        version = subprocess.run([python, "-c", TRANSFORMERS, output, texts, ids, decoded], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout.strip()
        yield f"transformers {version}", True


def compare(name, groups, folder):
    """Prints what differs. Returns the number of texts that do, None if there is no such tokenizer."""
    if packages.tokenizer(name) is None:
        return None
    reference, output = converted(name, folder)
    bad = 0
    for group, texts in groups.items():
        oracle.pack(texts, folder / "texts")
        expected = [reference.encode(text) for text in texts]
        for program, decodes in programs(output, folder):
            wrong = 0
            decoded = oracle.unpack_texts(folder / "decoded") if decodes else iter(lambda: None, 0)
            for text, ids, right, again in zip(texts, oracle.unpack(folder / "ids"), expected, decoded):
                if list(ids) == right and again in (None, reference.decode(right)):
                    continue
                wrong += 1
                if wrong <= 3:
                    at = next((i for i, (a, b) in enumerate(zip(ids, right)) if a != b), min(len(ids), len(right)))
                    print(f"  {text[:80]!r}: at {at} {ids[at:at + 6]}, expected {right[at:at + 6]}; {again!r:.80}")
            print(f"{name} {group}, {program}: {len(texts)} texts, {sum(map(len, expected))} tokens, {wrong} differ",
                  flush=True)
            bad += wrong
    return bad


if __name__ == "__main__":
    sys.exit(oracle.run(NAMES, lambda count: {"runs": run_texts(), "any code points": any_texts(count)}, compare))
