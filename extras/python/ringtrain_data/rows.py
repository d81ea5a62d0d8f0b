# Rows of data sets, one at a time, from files of any kind: parquet, Arrow, JSON, JSONL, CSV, a folder as on the hub,
# and arrays of tokens. Memory holds a few rows, never a file.
#
# rows() yields pairs of a location for messages ("FILE: row 7", counted from 1) and a dict with one key per column.
import contextlib
import csv
import io
import itertools
import json
import pathlib
import re

KINDS = {".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "lines", ".ndjson": "lines",
         ".csv": "csv", ".npy": "tokens", ".bin": "tokens"}
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
          "dev": "validation", "eval": "validation", "test": "test", "testing": "test"}
BATCH_ROWS, LONGEST_JSON = 64, 256 << 20
NO_ROWS = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}  # they describe a data set


# Ends a conversion, with one sentence that says what is wrong, where, and what to do. code: 2 if the command line
# requests something impossible, 3 if an input cannot be read, as for `prepare`.
class Refused(Exception):
    def __init__(self, sentence, code=3):
        super().__init__(sentence)
        self.code = code


# Return why a row or a file is not read: the message of the exception, in one line.
def reason(error):
    named = "" if isinstance(error, (Refused, OSError, ValueError)) else f"{type(error).__name__}: "
    return named + (getattr(error, "strerror", None) or str(error)).replace("\n", " ")


# Return a list or object that a column holds as JSON, as CSV files and tools do.
def parsed(value):
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


# Return the kind of a file, by its first bytes or otherwise its name; None if it is not supported.
def kind_of(path):
    with open(path, "rb") as file:
        head = file.read(6)
    name = pathlib.PurePath(path.name.lower())
    by_name = KINDS.get(name.with_suffix("").suffix if name.suffix in COMPRESSED else name.suffix)
    return "parquet" if head[:4] == b"PAR1" else "arrow" if head == b"ARROW1" else by_name


def text_of(path, newline=None):
    import pyarrow
    stream = pyarrow.input_stream(str(path), compression=COMPRESSED.get(path.suffix.lower()))
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline=newline)


# Return a value of Arrow without the keys that it adds because other rows have them. A row keeps all columns.
def without_none(value, is_row=False):
    if isinstance(value, dict):
        return {key: without_none(one) for key, one in value.items() if is_row or one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


def batch_rows(batches):
    for batch in batches:
        for begin in range(0, batch.num_rows, BATCH_ROWS):
            yield from (without_none(row, is_row=True) for row in batch.slice(begin, BATCH_ROWS).to_pylist())


def parquet_rows(path):
    import pyarrow.parquet
    with pyarrow.parquet.ParquetFile(path) as file:
        yield from batch_rows(file.iter_batches(batch_size=BATCH_ROWS))


def arrow_rows(path):
    import pyarrow
    with pyarrow.memory_map(str(path)) as data:
        if data.read(6) == b"ARROW1":
            reader = pyarrow.ipc.open_file(data)
            yield from batch_rows(reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            data.seek(0)
            yield from batch_rows(pyarrow.ipc.open_stream(data))


def json_line_rows(path):
    for line in text_of(path, newline="\n"):
        try:
            yield json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            yield error


# Rows of an array of objects, or of consecutive objects. After a broken one, it is unknown where the next begins.
def json_rows(path):
    with text_of(path) as stream:
        buffer, at, number, decoder = stream.read(1 << 20), 0, 1, json.JSONDecoder()
        is_array = buffer.lstrip().startswith("[")
        between, closing = re.compile(r"[\s,\[]*" if is_array else r"\s*"), "]" if is_array else ""
        while len(buffer) - at <= LONGEST_JSON:
            at = between.match(buffer, at).end()
            try:
                value, at = decoder.raw_decode(buffer, at)
                number += 1
                yield value
            except (ValueError, RecursionError) as error:
                more = stream.read(max(1 << 20, len(buffer) - at))
                if not more and buffer[at:].strip() == closing:
                    return
                if not more:
                    raise ValueError(f"row {number}: {getattr(error, 'msg', error)}; later rows are lost") from error
                buffer, at = buffer[at:] + more, 0
    raise Refused(f"{path}: no whole row within {LONGEST_JSON >> 20} MiB")


def token_array(path, dtype):
    import numpy
    if path.suffix == ".npy":
        return numpy.load(path, mmap_mode="r", allow_pickle=False)
    if not dtype:
        raise Refused(f"{path}: give the type of its numbers with --dtype uint16 or uint32", 2)
    return numpy.memmap(path, dtype=numpy.dtype(dtype).newbyteorder("<"), mode="r")


# Rows of an array of tokens: each row of a table, or the parts of a list between its offsets.
def token_rows(path, dtype, offsets):
    tokens = rows = token_array(path, dtype)
    if tokens.ndim == 1:
        if not offsets:
            raise Refused(f"{path}: it is not known where its documents begin; name their offsets with --offsets", 2)
        places = token_array(pathlib.Path(offsets), "int64")
        if places.ndim != 1 or [*places[:1], *places[-1:]] != [0, len(tokens)] or (places[1:] < places[:-1]).any():
            raise Refused(f"{offsets}: offsets must ascend from 0 to {len(tokens)}, the number of tokens of {path}")
        rows = (tokens[begin:end] for begin, end in itertools.pairwise(places))
    yield from ({"input_ids": ids} for ids in rows)


# Return the choice among the parts of a data set, or refuse it.
def chosen(parts, choice, folder, kind):
    if choice not in parts:
        raise Refused(f"{folder} has the {kind}s {', '.join(sorted(parts))}; choose one with --{kind}", 2)
    return parts[choice]


# Return the files of a split that the card of a data set (README.md) declares, or None if it declares none.
def declared_files(folder, split, subset):
    import yaml
    card = folder / "README.md"
    head = re.match(r"---\n(.*?)\n---", card.read_text("utf-8", "replace"), re.DOTALL) if card.is_file() else None
    configs = ((yaml.safe_load(head[1]) if head else None) or {}).get("configs") or []
    configs = {str(one.get("config_name", "default")): one for one in configs if one.get("data_files")}
    if not configs:
        return None
    default = [name for name, one in configs.items() if one.get("default") or name == "default" or len(configs) == 1]
    files = chosen(configs, subset or "".join(default[:1]), folder, "subset")["data_files"]
    patterns = {}
    for one in files if isinstance(files, list) else [files]:
        one = one if isinstance(one, dict) else {"split": "train", "path": one}
        patterns.setdefault(one["split"], []).extend([one["path"]] if isinstance(one["path"], str) else one["path"])
    return [path for pattern in chosen(patterns, split, folder, "split") for path in sorted(folder.glob(pattern))]


# Return the files of a split of a data set's folder.
def files_of(folder, split, subset):
    if (declared := declared_files(folder, split, subset)) is not None:
        return declared
    root, splits = folder / (subset or ""), {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        hidden = any(part.startswith((".", "cache-")) for part in name.parts) or name.name in NO_ROWS
        if path.is_file() and not hidden and kind_of(path) not in (None, "tokens"):
            named = [SPLITS[word] for word in re.split(r"[^a-z]+", str(name).lower()) if word in SPLITS]
            splits.setdefault(named[-1] if named else "", []).append(path)
    if not splits:
        raise Refused(f"{root}: no .parquet, .arrow, .json, .jsonl or .csv in this folder", 2)
    return splits[""] if splits.keys() == {""} else chosen(splits, SPLITS.get(split, split), folder, "split")


# Yield (place, row) of files and folders. A broken row is replaced by the exception that describes the problem.
def rows(inputs, split="train", subset=None, dtype=None, offsets=None):
    csv.field_size_limit(LONGEST_JSON)
    readers = {"parquet": parquet_rows, "arrow": arrow_rows, "lines": json_line_rows, "json": json_rows,
               "csv": lambda path: csv.DictReader(text_of(path, newline="")),
               "tokens": lambda path: token_rows(path, dtype, offsets)}
    for path in map(pathlib.Path, inputs):
        try:
            for path in files_of(path, split, subset) if path.is_dir() else [path]:
                if (kind := kind_of(path)) is None:
                    raise Refused(f"{path}: is not .parquet, .arrow, .json, .jsonl, .csv, .npy or .bin; for plain "
                                  "text, use prepare", 2)
                for number, row in enumerate(readers[kind](path), 1):
                    if row is not None:
                        yield f"{path}: row {number}", row
        except Exception as error:  # any: packages read the files, and a dataset card can contain anything
            passed_on = isinstance(error, (Refused, ImportError, MemoryError))
            raise error if passed_on else Refused(f"{path}: {reason(error)}")
