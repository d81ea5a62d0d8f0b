#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/token_file and corpus/manifest/{token,list,checkpoint}.json.

Token files are like those of h5py (pip install h5py xxhash), each after its manifest and a byte of 0: good-* open, and
bad-* are refused. The files are kept in the repository; this script made them (h5py 3.7, HDF5 1.10)."""
import json
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import xxhash

folder = pathlib.Path(__file__).parent / "corpus"
tokens = np.array([1, 2, 256, 3, 256], dtype="<u2")
offsets = np.array([0, 3, 5], dtype="<i8")


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sealed(manifest):
    return dict(manifest, hash=xxhash.xxh3_128_hexdigest(compact(manifest)))


def datasets_of(file):
    found = []
    file.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
    return [{"name": name, "type": item.dtype.name, "shape": list(item.shape), "offset": item.id.get_offset()}
            for name, item in found]


def token_file(name, body=None, change=None, libver="earliest", **more):
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary, "x.h5")
        with h5py.File(path, "w", libver=libver) as file:
            file["tokens"], file["document_offsets"] = tokens, offsets
            if body:
                body(file)
        with h5py.File(path) as file:
            datasets = datasets_of(file)
        content = path.read_bytes()
    if change:
        change({dataset["name"]: dataset for dataset in datasets})
    manifest = dict(format="ringtrain-tokens", format_version=2, bytes=len(content),
                    xxh3_128=xxhash.xxh3_128_hexdigest(content), vocab_size=257, first_validation_document=1,
                    datasets=datasets, **more)
    (folder / "token_file" / name).write_bytes(compact(sealed(manifest)).encode() + b"\0" + content)
    return manifest


def groups(file):
    for i in range(8):
        file[f"weights/layer.{i}/a"] = np.full(3, i, dtype="<f4")


def write(name, text):
    (folder / "manifest" / name).write_text(text + "\n")


for old in (folder / "token_file").glob("*"):
    old.unlink()
good = token_file("good-old")
token_file("good-new", libver="latest")
token_file("good-groups", groups)
token_file("good-weights", lambda f: f.create_dataset("weights", data=np.ones(5, dtype="<f4")), libver="latest")
token_file("good-bytes", lambda f: f.create_dataset("document_bytes", data=np.array([7, 2], dtype="<i8")))
token_file("good-wide", lambda f: (f.pop("tokens"), f.create_dataset("tokens", data=tokens.astype("<u4"))))
token_file("good-said", end_of_document=0, tokenizer_hash="ab" * 16, byte_count=9)
token_file("bad-beyond", change=lambda d: d["tokens"].update(offset=1 << 20))
token_file("bad-overlap", change=lambda d: d["tokens"].update(offset=d["document_offsets"]["offset"]))
token_file("bad-huge", change=lambda d: d["tokens"].update(shape=[1 << 32, 1 << 32]))
token_file("bad-type", change=lambda d: d["tokens"].update(type="float16"))
token_file("bad-rank", change=lambda d: d["tokens"].update(shape=[5, 1]))
token_file("bad-name", change=lambda d: d["document_offsets"].update(name="tokens"))
write("token.json", compact(sealed(good)))
write("list.json", compact(dict(format="ringtrain datasets", format_version=1, step=2, datasets=[
    dict(name="weights/norm", type="float32", shape=[16], offset=2048),
    dict(name="first_moment/norm[0:8]", type="float32", shape=[8], offset=2112)])))
checkpoint = dict(format="ringtrain checkpoint", format_version=3, step=2, samples=4, tokens=64, skipped_steps=0,
                  data_hash="ab" * 16, dtype="float32", model=dict(architecture="llama", parameters=99), ranks=1,
                  files=[dict(name=name, bytes=9, xxh3_128="cd" * 16) for name in
                         ("state-00000-of-00001.h5", "state-00000-of-00001.h5.json", "config.yaml")])
checkpoint["hash"] = xxhash.xxh3_128_hexdigest(json.dumps(checkpoint, indent=2))
write("checkpoint.json", json.dumps(checkpoint, indent=2))  # the same bytes as this program writes
print(f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}", file=sys.stderr)
