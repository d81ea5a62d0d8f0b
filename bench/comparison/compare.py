"""Runs ours and the baselines alternately on the same cores and compares the results with the targets.

Every figure is a ratio of measurements within seconds of each other: a pair. The table shows the median of the pairs
and their spread. A pair during which other processes used the machine is measured again, so a busy machine takes
longer. Exit: 0 all targets are reached; 1 some are missed; 3 something could not be measured.
"""
import argparse
import json
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from comparison import groups, machine, setup, table  # noqa: E402  (the path above comes first)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="at most 10 minutes on 2 cores: 3 pairs (2 of a ring's), only groups with targets")
    parser.add_argument("--pairs", type=int, metavar="N", help="pairs of every row (default: 5)")
    parser.add_argument("--only", metavar="GROUP", action="append", choices=list(groups.GROUPS),
                        help="one group of rows, may be repeated: " + ", ".join(groups.GROUPS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="cores of each program that uses more than one (default: all of this process)")
    parser.add_argument("--json", metavar="FILE", help="also write the table, every pair and every figure to FILE")
    parser.add_argument("--no-build", action="store_true", help="measure what build/release holds")
    arguments = parser.parse_args()
    if arguments.pairs is not None and arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    return arguments


def main():
    arguments = parse_arguments()
    start = time.monotonic()
    wanted = arguments.only or groups.names(arguments.quick)
    os.chdir(setup.ROOT)
    if not arguments.no_build:
        setup.build()
    baseline_python = setup.baseline_python() if any(groups.GROUPS[name].needs_baseline for name in wanted) else None
    context = groups.Context(quick=arguments.quick, pairs=arguments.pairs, threads=arguments.threads,
                             baseline_python=baseline_python, bin=setup.BIN)
    about = machine.describe(arguments.threads, baseline_python)
    print(machine.text(about), flush=True)

    rows, figures = [], []
    for name in wanted:
        machine.say(f"{name}: {groups.GROUPS[name].title}")
        interference = machine.Interference()
        group_rows, group_figures = groups.run(name, context)
        rows += group_rows
        figures += [*group_figures, table.Figure(f"used by others during {name}", "cores", [sum(interference.cores())])]
        if len(wanted) > 1:
            print(table.text(group_rows), flush=True)
    context.close()

    seconds = time.monotonic() - start
    print("\n" + table.figures_text(figures))
    print("\n" + table.text(rows))
    missed, unmeasured = table.missed(rows), table.unmeasured(rows)
    print(f"\n{len(rows)} rows in {seconds:.0f} s: {len(missed)} missed, {len(unmeasured)} not measured")
    for row in rows:
        if row.disturbed:
            print(f"disturbed by others, do not trust: {row.what}")
    for row in missed:
        print(f"missed: {row.what}: {row.value:.3f}, must reach {row.must}")
    for row in unmeasured:
        print(f"not measured: {row.what}: {row.why}")
    if arguments.json:
        report = {"about": about, "seconds": seconds, "quick": arguments.quick,
                  "rows": [row.as_dict() for row in rows], "figures": [figure.as_dict() for figure in figures]}
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return table.exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
