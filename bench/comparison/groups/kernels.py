"""Our attention over the large product that is timed just before it, and on all cores over one."""
from comparison.groups.context import Figures, measure_pairs, rate
from comparison.table import Row

SECONDS = 0.3  # of one measurement

# pass, head size, causal: must reach, aim
ATTENTION = [
    ("forward", 64, False, 0.80, 0.90),
    ("forward", 128, False, 0.88, 0.96),
    ("backward", 64, False, 0.85, 0.95),
    ("backward", 128, False, 0.85, 0.95),
    ("forward", 64, True, 0.78, 0.88),
    ("forward", 128, True, 0.78, 0.88),
    ("backward", 64, True, 0.82, 0.90),
    ("backward", 128, True, 0.82, 0.90),
]


def named(direction, head, causal):
    return f"{direction} {'causal' if causal else 'full'} head {head}"


def attention(context):
    rows, figures = [], Figures()
    for direction, head, causal, must, aim in ATTENTION:
        name = named(direction, head, causal)
        row = Row(f"attention {name}, 4K tokens, over the large product, 1 core", must, aim)

        def pair():
            fastest, libraries = context.product(threads=1)
            for library, value in libraries.items():
                figures.add(f"large product, {library}, 1 core", "GFLOP/s", value)
            ours = rate(context.ours.ask(kind="attention", **{"pass": direction}, S=4096, H=2, G=2, D=head,
                                         causal=causal, threads=1, seconds=SECONDS))
            figures.add(f"attention {name}, 1 core", "GFLOP/s", ours)
            return ours / fastest

        measure_pairs(row, context.count(), pair)
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
                return rates[1] / rates[0]

            measure_pairs(row, context.count(), pair)
            rows.append(row)
    return rows, figures.all()
