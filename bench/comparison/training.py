"""Runs the program `train` for a few steps, reports their times, and reads the program's own output."""
import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import time

from comparison import machine, setup
from comparison.workers import WorkerError

CONFIGS = setup.ROOT / "bench" / "configs"


def command(config, settings, *flags):
    changed = {"data.train": setup.token_file()} | settings
    return [setup.BIN / "train", "--config", CONFIGS / config, *flags,
            *[part for key, value in changed.items() for part in ("--set", f"{key}={value}")]]


def plan(config, settings):
    """Return the output of --dry-run for this config with these settings."""
    result = subprocess.run(list(map(str, command(config, settings, "--dry-run"))), capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        raise WorkerError(result.stderr.strip().splitlines()[-1])
    return result.stdout


def value_of(report, key):
    """Return the number for a key in a resolved config, e.g. model.hidden_size."""
    section, name = key.split(".")
    found = re.search(rf"^{section}:.*?^  {name}: (\S+)", report, re.MULTILINE | re.DOTALL)
    return int(found[1])


def model_of(report):
    """Return the model section of a resolved config, as --dry-run prints it: {key: number, flag or word}."""
    section = re.search(r"^model:.*\n((?:  .*\n)+)", report, re.MULTILINE)[1]
    values = dict(re.findall(r"^  (\w+): ([^\s#]+)", section, re.MULTILINE))
    words = {"true": True, "false": False}
    return {key: int(value) if value.isdigit() else words.get(value, value) for key, value in values.items()}


def flops_per_token(report):
    """Return the model FLOPs per token of a resolved config's step: 6 N, and 12 L C per visible pair, of which a causal
    sequence of T tokens has (T + 1) / 2 per token. N: the parameters by which every token is multiplied, which is all
    except a position table and, if the head has its own weights, the input embedding. C is the width of all heads
    together."""
    parameters = int(re.search(r"^parameters: (\d+)", report, re.MULTILINE)[1])
    model = model_of(report)
    width = model["num_attention_heads"] * model["head_dim"]
    rows = model["max_position_embeddings"] if model["architecture"] == "gpt2" else 0
    rows += 0 if model["tie_word_embeddings"] else model["vocab_size"]
    pairs = (value_of(report, "training.seq_len") + 1) / 2
    return 6 * (parameters - rows * model["hidden_size"]) + 12 * model["num_hidden_layers"] * width * pairs


def steps(config, settings, threads, warm_up, measured):
    """Return the metrics of `measured` steps of a new run, after `warm_up` steps that are not reported."""
    return run(config, settings, threads, warm_up + measured).lines[warm_up:]


@dataclasses.dataclass
class Run:
    lines: list  # of metrics.jsonl, as dicts
    resident_bytes: int  # the process's peak, according to the kernel


def run(config, settings, threads, count, timeout=900, limit_bytes=None):
    """Runs `count` steps of a new run and ends it without saving, because writing a checkpoint is not part of a step.
    limit_bytes: of the process's address space; a run that needs more fails. Raises WorkerError on failure."""
    setup.WORK.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=setup.WORK))
    line = command(config, settings | {"training.steps": count + 1000}, "--output", folder / "run")
    log = folder / "log"
    limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))) if limit_bytes else None
    try:
        with log.open("w") as file:
            process = subprocess.Popen(machine.pinned(line, threads), stdout=file, stderr=file, preexec_fn=limit)
        try:
            lines = wait_for_lines(folder / "run" / "metrics.jsonl", count, process, timeout, log)
        finally:
            resident = end(process)
        return Run([json.loads(text) for text in lines[:count]], resident)
    finally:
        shutil.rmtree(folder)


def end(process):
    """Kills the process if it still runs. Return its peak memory in bytes; 0 if it had already ended."""
    if process.returncode is not None:
        return 0
    process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024


def wait_for_lines(path, count, process, timeout, log):
    """Return the first lines of a growing file, at least `count` of them, each complete."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        if len(lines) >= count:
            return lines
        if ended:
            words = log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"]
            raise WorkerError(f"train ended with {process.returncode}: {words[-1]}")
        time.sleep(0.02)
    raise WorkerError(f"train made no {count} steps within {timeout} s")
