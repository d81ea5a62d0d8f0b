"""Prints a rank's memory, by tag, at 4K to 256K tokens of context on rings of 1 to 8, in float32 and bfloat16. Then
trains, and compares the resident memory according to the kernel with the plan.

The tables are from the plan of `train --dry-run`; the process's own peak verifies it. The last run is a training step
of 256K tokens on 2 ranks whose address space is limited to 8 GiB; it takes minutes. Exit: 0, or 1 if a run failed or
used more memory than its plan and the program itself.
"""
import argparse
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from comparison import machine, plan, setup, table, training  # noqa: E402  (the path above comes first)
from comparison.workers import WorkerError  # noqa: E402

CONFIG, K, MIB = "memory.yaml", 1024, 2**20
LENGTHS, RINGS, DTYPES = (4 * K, 16 * K, 64 * K, 256 * K), (1, 2, 4, 8), ("float32", "bfloat16")
# Tokens, ranks, other settings. The weights of the last two are larger than their activations.
LARGER = {"model.hidden_size": 768, "model.num_hidden_layers": 8, "model.intermediate_size": 3072}
WITNESSES = (*((length, ring, {"training.dtype": dtype}) for dtype in DTYPES
               for length, ring in ((4 * K, 1), (16 * K, 2), (64 * K, 4))),
             (K, 4, LARGER), (K, 4, {**LARGER, "training.shard": "weights"}))
LONG_LIMIT = 8 * 2**30
PROGRAM = 48 * MIB  # code, libraries, stacks, messages in flight between thread ranks: memory without a tag


def settings(length, ring):
    return {"training.seq_len": length, "mesh.sequence": ring, "mesh.threads_per_rank": max(1, 2 // ring)}


def plans():
    """Prints the plans of all lengths and rings. Returns their records by dtype."""
    records = {}
    for dtype in DTYPES:
        records[dtype] = [plan.record(plan.ranks_of(training.plan(CONFIG, {**settings(length, ring),
                                                                           "training.dtype": dtype})), length)
                          for length in LENGTHS for ring in RINGS]
        print(f"\n{dtype}: MiB of the rank that holds most, by tag; the last column: all ranks together\n")
        print(plan.table_of(records[dtype]), flush=True)
    return records


def witness(length, ring, other, limit=None):
    """Trains one step. Returns its record."""
    keys = {**settings(length, ring), **other}
    planned = sum(held["total"] for held in plan.ranks_of(training.plan(CONFIG, keys)).values())
    run = training.run(CONFIG, keys, 2, count=1, timeout=1500, limit_bytes=limit)
    return {"tokens": length, "ranks": ring, "dtype": keys.get("training.dtype", "float32"),
            "shard": keys.get("training.shard", "optimizer"), "planned": planned, "resident": run.resident_bytes,
            "seconds": run.lines[0]["seconds"], "limit": limit}


def main():
    parser = argparse.ArgumentParser(prog="bench/memory", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-long", action="store_true", help="leave out the step of 256K tokens")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to FILE")
    parser.add_argument("--no-build", action="store_true", help="measure what build/release holds")
    arguments = parser.parse_args()
    if not arguments.no_build:
        setup.build()
    planned = plans()
    cases = [(*case, None) for case in WITNESSES]
    if not arguments.without_long:
        cases.append((256 * K, 2, {}, LONG_LIMIT))
    records, wrong = [], []
    for length, ring, other, limit in cases:
        machine.say(f"a step of {length // K}K tokens on a ring of {ring}, {other.get('training.dtype', 'float32')}"
                    + (f", inside {limit // 2**30} GiB of address space" if limit else ""))
        try:
            record = witness(length, ring, other, limit)
        except WorkerError as error:
            wrong.append(f"{length // K}K tokens on {ring} ranks: {error}")
            continue
        records.append(record)
        if record["resident"] > record["planned"] + PROGRAM:
            wrong.append(f"{length // K}K tokens on {ring} ranks: {record['resident']} bytes were resident, planned "
                         f"are {record['planned']} and {PROGRAM} for the program itself")
    rows = [[f"{r['tokens'] // K}K", str(r["ranks"]), r["dtype"], r["shard"], f"{r['planned'] / MIB:.1f}",
             f"{r['resident'] / MIB:.1f}", f"{(r['resident'] - r['planned']) / MIB:+.1f}", f"{r['seconds']:.1f}"]
            for r in records]
    print("\n" + table.aligned(rows, ["tokens", "ranks", "dtype", "shard", "planned, all ranks, MiB", "resident, MiB",
                                      "difference", "step, s"]))
    for line in wrong:
        print("wrong: " + line)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"plans": planned, "runs": records}, indent=1) + "\n",
                                                encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
