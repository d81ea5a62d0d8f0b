"""The rounding error of attention on a ring of N over that of one rank, both in float32 against one of double."""
import json
import subprocess

from comparison import machine
from comparison.groups.context import Figures
from comparison.table import Row


def measure(context):
    rows = {n: Row(f"attention's error on a ring of {n} over one rank's, float32 against double", 1.2, 1.0,
                   at_most=True, by_worst=True) for n in (2, 4, 8)}
    figures = Figures()
    result = subprocess.run([context.bin / "ring_error", str(context.count())], capture_output=True, text=True,
                            check=False, env=machine.environment(1))
    if result.returncode != 0:
        for row in rows.values():
            row.why = (result.stderr.strip().splitlines() or ["ring_error failed"])[-1]
        return list(rows.values()), []
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    one = {(line["seed"], line["layout"], line["tensor"]): line["error"] for line in lines if line["ring"] == 1}
    for line in lines:
        figures.add(f"relative error of {line['tensor']}, ring of {line['ring']}", "(rms)", line["error"])
        if line["ring"] > 1:
            rows[line["ring"]].pairs.append(line["error"] / one[line["seed"], line["layout"], line["tensor"]])
    return list(rows.values()), figures.all()
