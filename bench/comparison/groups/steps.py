"""A whole training step of a model of 124M parameters, ours in float32: over the large product, and over the same model
in PyTorch, in float32 and in bfloat16."""
from comparison import training
from comparison.groups.context import Figures, measure_pairs
from comparison.table import Row
from comparison.workers import WorkerError

# model: config, its name, must reach and aim over the product (only for GPT-2) and over PyTorch eager
MODELS = {
    "gpt2": ("gpt2_124m.yaml", "GPT-2 124M", (0.65, 0.80), (1.2, 1.5)),
    "llama": ("llama_124m.yaml", "Llama 124M", (None, None), (None, None)),
}
SHAPES = {"gpt2": [(4, 1024)], "llama": [(4, 1024), (1, 8192)]}  # sequences, tokens


def measure(context, model):
    rows, figures = [], Figures()
    for sequences, length in SHAPES[model]:
        rows += measure_shape(context, model, sequences, length, figures)
    return rows, figures.all()


def measure_shape(context, model, sequences, length, figures):
    config, name, of_product, over_eager = MODELS[model]
    n = context.threads
    settings = {"mesh.threads_per_rank": n, "training.global_batch_size": sequences,
                "training.micro_batch_size": sequences, "training.seq_len": length}
    shape = f"{sequences} x {length} tokens, {n} cores"
    product_row = Row(f"{name} training step over the large product, {shape}", *of_product)
    modes = [(mode, dtype) for mode in (["eager"] if context.quick else ["eager", "compiled"])
             for dtype in ("float32", "bfloat16")]
    rows = {(mode, dtype): Row(f"{name} training step over PyTorch {mode} in {dtype}, {shape}",
                               *(over_eager if (mode, dtype) == ("eager", "float32") else ()))
            for mode, dtype in modes}
    flops = training.flops_per_token(training.plan(config, settings)) * sequences * length
    figures.add(f"{name}: model FLOPs of a step, {shape}", "TFLOP", flops * 1e-12)
    question = {"kind": "steps", "count": 1, "sequences": sequences, "length": length, "timeout": 1200}

    baselines = {}
    for mode, dtype in modes:
        try:
            baselines[mode, dtype] = fastest_baseline(context, model, mode, dtype, question, figures)
        except WorkerError as error:
            rows[mode, dtype].why = str(error)

    def pair():
        ours, share = our_step(context, config, settings, flops, figures, f"{name}, {shape}")
        ratios = [share]
        for (mode, dtype), baseline in baselines.items():
            theirs = baseline.ask(**question)["seconds"]
            figures.add(f"{name}, {shape}: step, PyTorch {mode} in {dtype}", "s", theirs)
            ratios.append(theirs / ours)
        return ratios

    measure_pairs([product_row, *(rows[key] for key in baselines)], context.count(), pair, figures)
    for baseline in baselines.values():
        baseline.close()
    return [product_row, *rows.values()]


def fastest_baseline(context, model, mode, dtype, question, figures):
    """Return the process, warmed up, of the backend with the fastest step: float32 products may use the package's BLAS
    or its oneDNN; a BLAS is not fast on every processor."""
    best, least = None, None
    for backend in ["blas", "onednn"] if (mode, dtype) == ("eager", "float32") else ["blas"]:
        worker = context.baseline("training.py", model, mode, dtype, backend)
        try:
            worker.ask(**question)  # warm-up
            seconds = worker.ask(**question)["seconds"]
        except WorkerError:
            worker.close()
            if backend == "blas":
                raise
            continue  # a version without that call of oneDNN
        figures.add(f"{MODELS[model][1]}, PyTorch {mode} in {dtype} by {backend}, {question['length']} tokens", "s",
                    seconds)
        if least is None or seconds < least:
            best, worker, least = worker, best, seconds
        if worker is not None:
            worker.close()
    return best


def our_step(context, config, settings, flops, figures, what):
    """Return the seconds of our step, measured between two measurements of the large product, and its rate over it."""
    before, _ = context.product(context.threads, seconds=0.5)
    [line] = training.steps(config, settings, context.threads, warm_up=1, measured=1)
    after, _ = context.product(context.threads, seconds=0.5)
    seconds = line["seconds"]
    product = (before + after) / 2
    figures.add(f"{what}: step, ours", "s", seconds)
    figures.add(f"large product, {context.threads} cores", "GFLOP/s", product)
    return seconds, flops / seconds * 1e-9 / product
