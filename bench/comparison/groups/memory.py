"""A rank's memory as the ring grows: activations decrease as 1 / N, and ring buffers follow their formula."""
from comparison import formulas, plan, training
from comparison.groups.context import Figures
from comparison.table import Row
from comparison.workers import WorkerError

CONFIG, LENGTH, RINGS = "ring.yaml", 16384, (1, 2, 4, 8)  # 8 ranks: 2K tokens each


def measure(context):
    shares = {n: Row(f"activations of a ring of {n} ranks over those of one, {LENGTH // n // 1024}K tokens a rank",
                     1.15, 1.05, at_most=True) for n in RINGS[1:]}
    ring_row = Row("ring buffers over their formula", 1, 1, at_most=True, by_worst=True)
    workspace_row = Row("workspace, but for attention's, over its formula", 1, 1, at_most=True, by_worst=True)
    true_row = Row("peak that a run reports over its plan", 1, 1, at_most=True, by_worst=True)
    rows, figures = [*shares.values(), ring_row, workspace_row, true_row], Figures()
    try:
        one = None
        for n in RINGS:
            settings = {"training.seq_len": LENGTH, "mesh.sequence": n, "mesh.threads_per_rank": 1}
            report = training.plan(CONFIG, settings)
            rank = max(plan.ranks_of(report).values(), key=lambda rank: rank["total"])
            for tag in ("activations", "ring", "workspace"):
                figures.add(f"{tag} of a rank, {LENGTH // 1024}K tokens, ring of {n}", "MiB", rank[tag] / 2**20)
            one = one or rank
            if n > 1:
                shares[n].pairs.append(rank["activations"] * n / one["activations"])
                formula = formulas.ring(n, LENGTH // n, training.value_of(report, "model.num_key_value_heads"),
                                        training.value_of(report, "model.head_dim"))
                ring_row.pairs.append(unlike(rank["ring"], formula))
            stated = formulas.workspace(training.model_of(report), LENGTH // n, n,
                                        training.value_of(report, "training.feedforward_chunk"),
                                        training.value_of(report, "training.loss_chunk"), keeps_all=False)
            workspace_row.pairs.append(unlike(rank["workspace"] - rank["tensors"]["attention workspace"], stated))
        settings = {"training.seq_len": 2048, "mesh.sequence": 2, "mesh.threads_per_rank": 1}
        planned = plan.ranks_of(training.plan(CONFIG, settings))
        line = training.steps(CONFIG, settings, context.threads, warm_up=0, measured=1)[0]
        for number, peak in enumerate(line["peak_bytes"]):
            true_row.pairs += [unlike(peak[tag], planned[number][tag]) for tag in plan.TAGS if planned[number][tag]]
    except WorkerError as error:
        for row in rows:
            row.pairs.clear()
            row.why = str(error)
    return rows, figures.all()


def unlike(value, expected):
    """Return by what factor two sizes differ: 1 if they are equal."""
    if value == expected:
        return 1.0
    return max(value, expected) / min(value, expected) if min(value, expected) > 0 else float("inf")
