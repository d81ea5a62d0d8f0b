"""Our attention over the large product that is timed just before it, and on all cores over one."""
from comparison.groups.context import Figures, measure_pairs, rate
from comparison.table import Row

SECONDS = 0.3  # of one measurement

# pass, causal, head size: must reach, aim
TARGETS = {
    ("forward", False, 64): (0.80, 0.90),
    ("forward", False, 128): (0.88, 0.96),
    ("backward", False, 64): (0.85, 0.95),
    ("backward", False, 128): (0.85, 0.95),
    ("forward", True, 64): (0.78, 0.88),
    ("forward", True, 128): (0.78, 0.88),
    ("backward", True, 64): (0.82, 0.90),
    ("backward", True, 128): (0.82, 0.90),
}
HEADS = (2, 8)  # with 8 of 128 a head's rows are 4 KiB apart, which maps them all to one set of an L1 cache


def named(direction, head, causal):
    return f"{direction} {'causal' if causal else 'full'} head {head}"


def attention(context):
    rows, figures = [], Figures()
    for (direction, causal, head), (must, aim) in TARGETS.items():
        for heads in HEADS:
            name = f"{named(direction, head, causal)}, {heads} heads"
            row = Row(f"attention {name}, 4K tokens, over the large product, 1 core", must, aim)

            def pair():
                fastest, libraries = context.product(threads=1)
                for library, value in libraries.items():
                    figures.add(f"large product, {library}, 1 core", "GFLOP/s", value)
                ours = rate(context.ours.ask(kind="attention", **{"pass": direction}, S=4096, H=heads, G=heads, D=head,
                                             causal=causal, threads=1, seconds=SECONDS))
                figures.add(f"attention {name}, 1 core", "GFLOP/s", ours)
                return [ours / fastest]

            measure_pairs([row], context.count(), pair, figures)
            rows.append(row)
    return rows, figures.all()


def scaling(context):
    """On n cores the targets for two are n / 2 of them."""
    rows, figures, n = [], Figures(), context.threads
    if n < 2:
        return [Row("attention, 2 cores over one", 1.9, 1.97, why="there is one core")], []
    for direction in ("forward", "backward"):
        for heads in (8, 1):
            what = f"{direction} causal head 64, {heads} head{'s' if heads > 1 else ''} of one sequence"
            row = Row(f"attention {what}, {n} cores over 1", 1.9 * n / 2, 1.97 * n / 2)

            def pair():
                rates = []
                for threads in (1, n):
                    rates.append(rate(context.ours.ask(kind="attention", **{"pass": direction}, S=4096, H=heads,
                                                       G=heads, D=64, causal=True, threads=threads, seconds=SECONDS)))
                    figures.add(f"attention {what}, {threads} core{'s' if threads > 1 else ''}", "GFLOP/s", rates[-1])
                return [rates[1] / rates[0]]

            measure_pairs([row], context.count(), pair, figures)
            rows.append(row)
    return rows, figures.all()
