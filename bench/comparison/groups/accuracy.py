"""The rounding error of attention on a ring of N over that of one rank, both against the plain formulas in double.
In bfloat16 also over that of PyTorch's attention, by length."""
import json
import math
import subprocess

from comparison import machine
from comparison.groups.context import Figures
from comparison.table import Row
from comparison.workers import WorkerError

TENSORS = ("out", "dq", "dk", "dv")


def measure(context):
    figures = Figures()
    rows = [*of_rings(context, "float32", 2048, context.count(), 1.2, 1.0, figures)]
    for tokens, seeds in ((1024, 16), (4096, 8)) if context.quick else ((1024, 16), (4096, 8), (16384, 3)):
        rows += of_rings(context, "bfloat16", tokens, seeds, 1.05, 1.0, figures)
    return rows, figures.all()


def of_rings(context, dtype, tokens, seeds, must, aim, figures):
    length = f"{tokens // 1024}K tokens"
    rows = {n: Row(f"attention's error on a ring of {n} over one rank's, {dtype}, {length}, against double", must, aim,
                   at_most=True, by_worst=True) for n in (2, 4, 8)}
    result = subprocess.run([context.bin / "ring_error", str(seeds), dtype, str(tokens)], capture_output=True,
                            text=True, check=False, env=machine.environment(1))
    if result.returncode != 0:
        for row in rows.values():
            row.why = (result.stderr.strip().splitlines() or ["ring_error failed"])[-1]
        return list(rows.values())
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    if dtype == "bfloat16":  # a few rows cause most of the error, and the direction of their rounding is random
        lines = pooled(lines)
    one = {(line["seed"], line["layout"], line["tensor"]): line["error"] for line in lines if line["ring"] == 1}
    for line in lines:
        figures.add(f"relative error of {line['tensor']}, {dtype}, {length}, ring of {line['ring']}", "(rms)",
                    line["error"])
        if line["ring"] > 1:
            rows[line["ring"]].pairs.append(line["error"] / one[line["seed"], line["layout"], line["tensor"]])
    if dtype == "float32":
        return list(rows.values())
    ours = {tensor: one["all", "contiguous", tensor] for tensor in TENSORS}
    return [*rows.values(), *over_baseline(context, tokens, seeds, length, ours, figures)]


def pooled(lines):
    """Return a line for each layout, ring and tensor, with the root mean square over all seeds."""
    errors = {}
    for line in lines:
        errors.setdefault((line["layout"], line["ring"], line["tensor"]), []).append(line["error"])
    return [{"seed": "all", "layout": layout, "ring": ring, "tensor": tensor, "error": root_mean_square(values)}
            for (layout, ring, tensor), values in errors.items()]


def root_mean_square(values):
    return math.sqrt(sum(value**2 for value in values) / len(values))


def over_baseline(context, tokens, seeds, length, ours, figures):
    """Return a row for each tensor: our error over PyTorch's, for inputs drawn from the same distribution."""
    rows = {tensor: Row(f"attention's error of {tensor} over PyTorch's, bfloat16, {length}, against double", 1.0,
                        at_most=True) for tensor in TENSORS}
    try:
        baseline = context.baseline("attention.py")
        asked = {"kind": "errors", "S": tokens, "H": 2, "D": 64, "dtype": "bfloat16", "threads": context.threads}
        answers = [baseline.ask(seed=seed, **asked) for seed in range(1, seeds + 1)]
        baseline.close()
    except WorkerError as error:
        for row in rows.values():
            row.why = str(error)
        return list(rows.values())
    for tensor, row in rows.items():
        theirs = root_mean_square([answer[tensor] for answer in answers])
        figures.add(f"relative error of {tensor}, bfloat16, {length}, PyTorch", "(rms)", theirs)
        row.pairs.append(ours[tensor] / theirs)
    return list(rows.values())
