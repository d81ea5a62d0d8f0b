#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/safetensors and tests/fuzz/corpus/gguf: small files, put together byte by byte."""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def safetensors(name, header, data):
    head = header.encode()
    (CORPUS / "safetensors" / name).write_bytes(struct.pack("<Q", len(head)) + head + bytes(data))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


safetensors("two", '{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
                   '"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}', 22)
safetensors("empty", "{}", 0)
safetensors("types", '{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[4],'
                     '"data_offsets":[8,10]},"c":{"dtype":"F64","shape":[0,3],"data_offsets":[10,10]}}   ', 10)

gguf = b"GGUF" + struct.pack("<IQQ", 3, 2, 3)  # version, tensors, entries
gguf += text("general.architecture") + struct.pack("<I", 8) + text("llama")
gguf += text("general.alignment") + struct.pack("<II", 4, 32)
gguf += text("list") + struct.pack("<IIQ", 9, 8, 2) + text("x") + text("yz")
gguf += text("a") + struct.pack("<IQQIQ", 2, 32, 2, 3, 0) + text("b") + struct.pack("<IQIQ", 1, 5, 0, 64)
(CORPUS / "gguf" / "two").write_bytes(gguf + bytes(-len(gguf) % 32) + bytes(64 + 20))
