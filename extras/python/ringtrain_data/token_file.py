# Token files of ringtrain (docs/data.md, version 2). Documents are first written to files next to the output in their
# original order, and then to their shuffled positions: memory holds only a few numbers for each document.
import array
import json
import os
import pathlib

import h5py
import numpy
import xxhash

from .rows import Refused


# Refuse to replace an existing output.
def refuse_existing(output):
    for path in (output, f"{output}.manifest.json", f"{output}.tokenizer"):
        if os.path.lexists(path):
            raise Refused(f"{path} already exists and is not replaced; choose another --output", 2)


# Makes one token file. folder: a temporary one next to the output.
class TokenFile:
    def __init__(self, output, vocab_size, folder):
        self.output, self.vocab_size, self.folder = output, vocab_size, pathlib.Path(folder)
        self.tokens, self.weights = (open(self.folder / name, "wb") for name in ("tokens", "weights"))
        self.lengths, self.text_bytes, self.total, self.learned = array.array("q"), array.array("q"), 0, 0
        self.weighted = False

    # Append a document. text_bytes: of its text, or None if unknown.
    def add(self, ids, weights, text_bytes):
        self.tokens.write(ids.astype("<u4").tobytes())
        self.weights.write(weights.astype("<f4").tobytes())
        self.weighted |= bool((weights != 1).any())
        self.learned += int((weights > 0).sum())
        self.lengths.append(len(ids))
        self.text_bytes.append(-1 if text_bytes is None else text_bytes)
        self.total += len(ids)

    def close(self):
        self.tokens.close()
        self.weights.close()

    # Make the file with space for its datasets; return what the manifest says about them.
    def write_hdf5(self, path, order):
        kind = "<u2" if self.vocab_size <= 1 << 16 else "<u4"
        with h5py.File(path, "w") as file:
            file.attrs["kind"] = "text"
            for name, dtype in (("tokens", kind), ("weights", "<f4"))[:1 + self.weighted]:
                file.create_dataset(name, (self.total,), dtype)[-1] = 0
            file["document_offsets"] = numpy.append(0, numpy.cumsum(self.lengths[order])).astype("<i8")
            if self.text_bytes.min() >= 0:
                file["document_bytes"] = self.text_bytes[order].astype("<i8")
            return [{"name": name, "type": one.dtype.name, "shape": list(one.shape), "offset": one.id.get_offset()}
                    for name, one in file.items()]

    # Copy the collected documents to a dataset's bytes, in order.
    def place(self, path, dataset, order):
        values = numpy.memmap(self.folder / dataset["name"], "<u4" if dataset["name"] == "tokens" else "<f4", "r")
        placed = numpy.memmap(path, dataset["type"], "r+", dataset["offset"], (self.total,))
        begins, at = numpy.append(0, numpy.cumsum(self.lengths)), 0
        for begin, end in zip(begins[order], begins[order + 1]):
            placed[at:at + end - begin] = values[begin:end]
            at += end - begin
        placed.flush()

    # Write the file and its manifest, with these additional members. Move the folder's tokenizer, the manifest, and then
    # the file to the output: if the file exists, everything does. Return how many documents are for validation.
    def finish(self, seed, fraction, end_of_document, **known):
        if not self.lengths:
            raise Refused("the inputs hold no document")
        self.close()
        self.lengths, self.text_bytes = (numpy.array(one, "i8") for one in (self.lengths, self.text_bytes))
        documents, path = len(self.lengths), self.folder / "file.h5"
        validation = 0 if fraction <= 0 else min(max(int(fraction * documents + 0.5), 1), documents - 1)
        order = numpy.random.default_rng(seed).permutation(documents)
        datasets = self.write_hdf5(path, order)
        for dataset in datasets:
            if dataset["name"] in ("tokens", "weights"):
                self.place(path, dataset, order)
        manifest = {"format": "ringtrain-tokens", "format_version": 2, "bytes": path.stat().st_size,
                    "xxh3_128": xxhash.xxh3_128_hexdigest(numpy.memmap(path, "u1", "r")),
                    "vocab_size": self.vocab_size, "end_of_document": end_of_document,
                    "first_validation_document": documents - validation, "datasets": datasets, **known}
        if self.text_bytes.min() >= 0:
            manifest["byte_count"] = int(self.text_bytes.sum())
        compact = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        manifest["hash"] = xxhash.xxh3_128_hexdigest(compact.encode())
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        refuse_existing(self.output)
        for name in ("tokenizer", "manifest.json"):
            os.replace(self.folder / name, f"{self.output}.{name}")
        os.replace(path, self.output)
        return validation
