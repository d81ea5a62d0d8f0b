#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/token_file: small HDF5 files as other writers make them, by h5py (pip install h5py).

The names say what a file is and whether framework/storage/hdf5_header.h reads it: good-* or bad-*. The files are kept in the
repository; this script is how they came about (h5py 3.10, HDF5 1.14)."""
import pathlib
import sys

import h5py
import numpy as np

folder = pathlib.Path(__file__).parent / "corpus" / "token_file"
tokens = np.array([1, 2, 256, 3, 256], dtype="<u2")
offsets = np.array([0, 3, 5], dtype="<i8")


def make(name, body=None, libver="earliest", plain=True):
    path = folder / f"{name}.h5"
    path.unlink(missing_ok=True)
    with h5py.File(path, "w", libver=libver) as file:
        if plain:
            file["tokens"] = tokens
            file["document_offsets"] = offsets
            for key, value in (("format_version", 1), ("vocab_size", 257), ("first_validation_document", 1)):
                file.attrs[key] = np.int64(value)
        if body:
            body(file)


def groups(file):
    for i in range(30):
        file[f"weights/layer.{i}/a"] = np.full(3, i, dtype="<f4")


def cycle(file):
    inner = file.create_group("a/b")
    inner["up"] = file["a"]


make("good-old")
make("good-new", libver="latest")
make("good-1.8", libver=("v108", "v108"))
make("good-old-groups", groups)
make("good-weights", lambda f: f.create_dataset("weights", data=np.ones(5, dtype="<f4")), libver="latest")
make("good-text", lambda f: f.attrs.create("kind", np.bytes_("text")), libver="latest")
make("bad-chunks", lambda f: f.create_dataset("x", data=tokens, chunks=(2,)))
make("bad-chunks-new", lambda f: f.create_dataset("x", data=tokens, chunks=(2,)), libver="latest")
make("bad-gzip", lambda f: f.create_dataset("x", data=tokens, chunks=(2,), compression="gzip"))
make("bad-variable-length", lambda f: f.create_dataset("x", data=["a", "bc"], dtype=h5py.string_dtype()))
make("bad-variable-attribute", lambda f: f.attrs.create("source", "a text of variable length"))
make("bad-soft-link", lambda f: f.__setitem__("x", h5py.SoftLink("/tokens")))
make("bad-soft-link-new", lambda f: f.__setitem__("x", h5py.SoftLink("/tokens")), libver="latest")
make("bad-external-link", lambda f: f.__setitem__("x", h5py.ExternalLink("other.h5", "/tokens")), libver="latest")
make("bad-external-data", lambda f: f.create_dataset("x", (4,), "<u2", external=[("other.bin", 0, 8)]))
make("bad-big-endian", lambda f: f.create_dataset("x", data=tokens.astype(">u2")))
make("bad-half", lambda f: f.create_dataset("x", data=np.ones(3, dtype="<f2")))
make("bad-compound", lambda f: f.create_dataset("x", data=np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")])))
make("bad-committed-type", lambda f: f.__setitem__("type", np.dtype("<i4")))
make("bad-cycle", cycle)
make("bad-many-links", lambda f: [f.__setitem__(f"x{i}", np.int64(i)) for i in range(20)], libver="latest")
make("bad-many-attributes", lambda f: [f.attrs.__setitem__(f"x{i}", np.int64(i)) for i in range(20)], libver="latest")
make("bad-list-attribute", lambda f: f.attrs.create("x", np.arange(3)))
print(f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}: {len(list(folder.glob('*.h5')))} files", file=sys.stderr)
