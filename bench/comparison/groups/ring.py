"""A training step on a ring of ranks over one rank's: the same tokens, the same cores, every core a compute thread."""
import statistics

from comparison import training
from comparison.groups.context import Figures, measure_pairs
from comparison.table import Row

CONFIG = "ring.yaml"
# tokens per rank of a ring with one rank per core: must reach, aim
LENGTHS = {8192: (1.05, 1.02), 2048: (1.15, 1.05)}


def measure(context):
    rows, figures, n = [], Figures(), context.threads
    if n < 2:
        return [Row("ring over one rank", 1.05, 1.02, at_most=True, why="there is one core")], []
    for tokens, (must, aim) in LENGTHS.items():
        length = tokens * n
        row = Row(f"step on a ring of {n} over one rank, {tokens // 1024}K tokens a rank, {n} cores", must, aim,
                  at_most=True)
        crowded = Row(f"step on a ring of {2 * n} over one rank, {tokens // 2048}K tokens a rank, {n} cores",
                      at_most=True)

        def step(ranks, threads):
            lines = training.steps(CONFIG, {"training.seq_len": length, "mesh.sequence": ranks,
                                            "mesh.threads_per_rank": threads},
                                   n, warm_up=1, measured=2 if tokens >= 8192 else 8)
            seconds = statistics.median(line["seconds"] for line in lines)
            figures.add(f"step of {length // 1024}K tokens, {ranks} rank{'s' if ranks > 1 else ''}", "s", seconds)
            if ranks > 1:
                figures.add(f"of it, rank 0 waits for the ring, {length // 1024}K tokens, {ranks} ranks", "s",
                            statistics.median(line["ring_wait_seconds"] for line in lines))
            return seconds

        def pair():
            one = step(1, n)
            ring = step(n, 1)
            return [ring / one, step(2 * n, 1) / one]

        measure_pairs([row, crowded], context.count(quick=2), pair, figures)
        rows += [row, crowded]
    return rows, figures.all()
