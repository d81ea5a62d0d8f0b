"""A whole training step of a model of 124M parameters: over the large product, and over the same model in PyTorch."""
from comparison import training
from comparison.groups.context import Figures, measure_pairs
from comparison.table import Row
from comparison.workers import WorkerError

# model: config, its name, must reach and aim over the product (of GPT-2 alone) and over PyTorch eager
MODELS = {
    "gpt2": ("gpt2_124m.yaml", "GPT-2 124M", (0.65, 0.80), (1.2, 1.5)),
    "llama": ("llama_124m.yaml", "Llama 124M", (None, None), (None, None)),
}
SEQUENCES, LENGTH = 4, 1024


def measure(context, model):
    config, name, of_product, over_eager = MODELS[model]
    n, modes = context.threads, ["eager"] if context.quick else ["eager", "compiled"]
    settings = {"mesh.threads_per_rank": n, "training.global_batch_size": SEQUENCES,
                "training.micro_batch_size": SEQUENCES, "training.seq_len": LENGTH}
    shape = f"{SEQUENCES} x {LENGTH} tokens, float32, {n} cores"
    product_row = Row(f"{name} training step over the large product, {shape}", *of_product)
    rows = {mode: Row(f"{name} training step over PyTorch {mode}, {shape}", *(over_eager if mode == "eager" else ()))
            for mode in modes}
    figures = Figures()
    report = training.plan(config, settings)
    flops = training.flops_per_token(report) * SEQUENCES * LENGTH
    figures.add(f"{name}: model FLOPs of a step, 6 N a token and 12 L C a visible pair", "TFLOP", flops * 1e-12)

    baselines = {}
    for mode in modes:
        try:
            baselines[mode] = context.baseline("training.py", model, mode)
            baselines[mode].ask(kind="steps", count=1, sequences=SEQUENCES, length=LENGTH, timeout=1200)  # warm-up
        except WorkerError as error:
            rows[mode].why = str(error)
            baselines.pop(mode, None)

    def pair():
        ours, of_product = our_step(context, config, settings, flops, figures, name)
        ratios = [of_product]
        for mode, baseline in baselines.items():
            theirs = baseline.ask(kind="steps", count=1, sequences=SEQUENCES, length=LENGTH)["seconds"]
            figures.add(f"{name} step, PyTorch {mode}", "s", theirs)
            ratios.append(theirs / ours)
        return ratios

    measure_pairs([product_row, *(rows[mode] for mode in baselines)], context.count(), pair, figures)
    for baseline in baselines.values():
        baseline.close()
    return [product_row, *rows.values()], figures.all()


def our_step(context, config, settings, flops, figures, name):
    """Return the seconds of our step, measured between two measurements of the large product, and its rate over it."""
    before, _ = context.product(context.threads, seconds=0.5)
    [line] = training.steps(config, settings, context.threads, warm_up=1, measured=1)
    after, _ = context.product(context.threads, seconds=0.5)
    seconds = line["seconds"]
    product = (before + after) / 2
    figures.add(f"{name} step, ours", "s", seconds)
    figures.add(f"{name}, ours", "tokens/s", SEQUENCES * LENGTH / seconds)
    figures.add(f"large product, {context.threads} cores", "GFLOP/s", product)
    return seconds, flops / seconds * 1e-9 / product
