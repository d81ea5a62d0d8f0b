"""GGUF files with SentencePiece's pieces, for the tests in Python."""
import os
import pathlib
import struct
import subprocess
import sys

MODEL = pathlib.Path(__file__).resolve().parent / "model" / "model.gguf"
ALIGNMENT = 32


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def write(pieces, path, **others):
    """Writes the tiny model with the tokenizer that llama.cpp's converter makes from pieces (text, score, type).
    others: keys of the tokenizer with a number or a boolean."""
    def numbers(kind, form, values):
        return struct.pack("<IIQ", 9, kind, len(values)) + struct.pack(f"<{len(values)}{form}", *values)

    texts, scores, kinds = zip(*pieces)
    values = {"model": struct.pack("<I", 8) + text("llama"),
              "tokens": struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(text, texts)),
              "scores": numbers(6, "f", scores), "token_type": numbers(5, "i", kinds)}
    for key, value in others.items():
        values[key] = struct.pack("<I?", 7, value) if isinstance(value, bool) else struct.pack("<II", 4, value)
    entries = b"".join(text("tokenizer.ggml." + key) + value for key, value in values.items())
    # Tensors only keep their relative offsets if everything moves by a multiple of the alignment.
    padding = text("padding") + struct.pack("<I", 8) + struct.pack("<Q", 0)
    spaces = -len(entries + padding) % ALIGNMENT
    entries += padding[:-8] + text(" " * spaces)
    model = MODEL.read_bytes().replace(b"tokenizer.ggml.", b"tokenizer.lost.")
    count = struct.unpack_from("<Q", model, 16)[0] + len(values) + 1
    path.write_bytes(model[:16] + struct.pack("<Q", count) + entries + model[24:])


def convert(path, output):
    """Makes a folder from a GGUF file. Returns the message that says why it has no tokenizer, or None if it has one."""
    command = [sys.executable, "-m", "ringtrain_gguf", "--input", path, "--output", output]
    environment = {**os.environ, "PYTHONPATH": str(MODEL.parents[4] / "extras" / "python")}
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return result.stderr if "the tokenizer is not converted" in result.stderr else None
