"""Our attention over PyTorch's scaled_dot_product_attention on the CPU: same shapes, all cores."""
from comparison.groups.context import Figures, measure_pairs, rate
from comparison.groups.kernels import SECONDS, named
from comparison.table import Row
from comparison.workers import WorkerError

TARGETS = {"forward": (1.2, 1.5), "backward": (1.4, 2.0)}


def measure(context):
    rows, figures = [], Figures()
    try:
        baseline = context.baseline("attention.py")
    except WorkerError as error:
        baseline, why = None, str(error)
    for direction, (must, aim) in TARGETS.items():
        for head in (64, 128):
            for causal in (False, True):
                name = named(direction, head, causal)
                row = Row(f"attention {name}, 4K tokens, over PyTorch, {context.threads} cores", must, aim)
                rows.append(row)
                if baseline is None:
                    row.why = why
                    continue
                question = {"kind": "attention", "pass": direction, "B": 1, "S": 4096, "H": 8, "G": 8, "D": head,
                            "causal": causal, "threads": context.threads, "seconds": SECONDS}

                def pair():
                    theirs = rate(baseline.ask(**question))
                    ours = rate(context.ours.ask(**question))
                    figures.add(f"attention {name}, ours, {context.threads} cores", "GFLOP/s", ours)
                    figures.add(f"attention {name}, PyTorch, {context.threads} cores", "GFLOP/s", theirs)
                    return [ours / theirs]

                measure_pairs([row], context.count(), pair, figures)
    if baseline is not None:
        baseline.close()
    return rows, figures.all()
