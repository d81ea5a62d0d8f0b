"""Ours in bfloat16: attention over the large product and over PyTorch's, and a step over PyTorch's autocast and over
our own float32."""
from comparison import training
from comparison.groups.context import Figures, measure_pairs, rate
from comparison.groups.kernels import SECONDS, named
from comparison.table import Row
from comparison.workers import WorkerError

# For processors whose instruction has 1.5 to 2 times the rate of fused multiply-adds; must reach, aim.
OF_PRODUCT, OVER_BASELINE, OVER_FLOAT32 = (0.75, 0.90), (2.0, 2.5), (1.4, 1.8)
# config, the model's name, its baseline, sequences, tokens, must reach and aim over PyTorch eager
STEPS = (("gpt2_124m.yaml", "GPT-2 124M", "gpt2", 4, 1024, (1.2, 1.5)),
         ("gpt2_124m.yaml", "GPT-2 124M", "gpt2", 1, 8192, (2.0, 3.0)),
         ("llama_124m.yaml", "Llama 124M", "llama", 1, 8192, (2.0, 3.0)))


def measure(context):
    rows, figures = [], Figures()
    instructions = context.ours.ask(kind="about")["bfloat16"]
    if instructions != "AVX512-BF16":
        return [Row("bfloat16", *OF_PRODUCT, why=f"this processor, or build, multiplies it by {instructions}")], []
    try:
        baseline = context.baseline("attention.py")
    except WorkerError as error:
        return [Row("bfloat16", *OVER_BASELINE, why=str(error))], []
    for direction in ("forward", "backward"):
        for head in (64, 128):
            for causal in (False, True):
                rows += attention(context, baseline, direction, head, causal, figures)
    baseline.close()
    for shape in [] if context.quick else STEPS:  # minutes per pair
        rows += step(context, *shape, figures)
    return rows, figures.all()


def attention(context, baseline, direction, head, causal, figures):
    """Return the rows of one shape on one core. The large product is the faster of ours and PyTorch's."""
    name = f"bfloat16 attention {named(direction, head, causal)}, 4K tokens, 1 core"
    rows = [Row(f"{name}, over the large product", *OF_PRODUCT), Row(f"{name}, over PyTorch", *OVER_BASELINE)]
    asked = {"dtype": "bfloat16", "threads": 1, "seconds": SECONDS}
    shape = {"kind": "attention", "pass": direction, "B": 1, "S": 4096, "H": 2, "G": 2, "D": head, "causal": causal}

    def pair():
        product = {"PyTorch": rate(baseline.ask(kind="product", size=2048, **asked)),
                   "ours": rate(context.ours.ask(kind="product", size=2048, **asked))}
        theirs, ours = rate(baseline.ask(**shape, **asked)), rate(context.ours.ask(**shape, **asked))
        for whose, value in product.items():
            figures.add(f"bfloat16 large product, {whose}, 1 core", "GFLOP/s", value)
        figures.add(f"{name}, ours", "GFLOP/s", ours)
        figures.add(f"{name}, PyTorch", "GFLOP/s", theirs)
        return [ours / max(product.values()), ours / theirs]

    measure_pairs(rows, context.count(), pair, figures)
    return rows


def step(context, config, name, model, sequences, length, over_eager, figures):
    shape = f"{sequences} x {length} tokens, {context.threads} cores"
    rows = [Row(f"{name} step in bfloat16 over PyTorch's, {shape}", *over_eager),
            Row(f"{name} step in bfloat16 over ours in float32, {shape}", *OVER_FLOAT32)]
    question = {"kind": "steps", "count": 1, "sequences": sequences, "length": length, "timeout": 1200}
    try:
        baseline = context.baseline("training.py", model, "eager", "bfloat16", "blas", str(length))
        baseline.ask(**question)  # warm-up
    except WorkerError as error:
        for row in rows:
            row.why = str(error)
        return rows

    def pair():
        seconds = {}
        for dtype in ("bfloat16", "float32"):
            settings = {"mesh.threads_per_rank": context.threads, "training.global_batch_size": sequences,
                        "training.micro_batch_size": sequences, "training.seq_len": length, "training.dtype": dtype,
                        "model.max_position_embeddings": length}
            [line] = training.steps(config, settings, context.threads, warm_up=1, measured=1)
            seconds[dtype] = line["seconds"]
            figures.add(f"{name}, {shape}: step, ours in {dtype}", "s", seconds[dtype])
        theirs = baseline.ask(**question)["seconds"]
        figures.add(f"{name}, {shape}: step, PyTorch eager in bfloat16", "s", theirs)
        return [theirs / seconds["bfloat16"], seconds["float32"] / seconds["bfloat16"]]

    measure_pairs(rows, context.count(), pair, figures)
    baseline.close()
    return rows
