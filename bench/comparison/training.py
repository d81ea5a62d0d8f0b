"""Runs the program `train` for a few steps and says what they took; reads what it says about itself."""
import json
import pathlib
import re
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
    """Return what --dry-run prints, of this config under these settings."""
    result = subprocess.run(list(map(str, command(config, settings, "--dry-run"))), capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        raise WorkerError(result.stderr.strip().splitlines()[-1])
    return result.stdout


def value_of(report, key):
    """Return the number that a resolved config says for a key, e.g. model.hidden_size."""
    section, name = key.split(".")
    found = re.search(rf"^{section}:.*?^  {name}: (\S+)", report, re.MULTILINE | re.DOTALL)
    return int(found[1])


def flops_per_token(report):
    """Return 6 N + 6 L C T of a resolved config: a training step's model FLOPs a token, causal. N: all parameters but
    GPT-2's position table; a tied head counts once. C is the width of all heads together."""
    parameters = int(re.search(r"^parameters: (\d+)", report, re.MULTILINE)[1])
    width = value_of(report, "model.num_attention_heads") * value_of(report, "model.head_dim")
    positions = value_of(report, "model.max_position_embeddings") * value_of(report, "model.hidden_size")
    if "architecture: gpt2" not in report:
        positions = 0
    return 6 * (parameters - positions) + 6 * value_of(report, "model.num_hidden_layers") * width * value_of(
        report, "training.seq_len")


def steps(config, settings, threads, warm_up, measured, timeout=900):
    """Return the metrics of `measured` steps of a new run, after `warm_up` steps that are not told. The run is ended
    after them, unsaved: a checkpoint's writing is nobody's step."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=setup.WORK))
    total = warm_up + measured
    line = command(config, settings | {"training.steps": total + 1000}, "--output", folder / "run")
    log = folder / "log"
    try:
        with log.open("w") as file:
            process = subprocess.Popen(machine.pinned(line, threads), stdout=file, stderr=file)
        try:
            lines = wait_for_lines(folder / "run" / "metrics.jsonl", total, process, timeout, log)
        finally:
            process.kill()
            process.wait()
        return [json.loads(text) for text in lines[warm_up:total]]
    finally:
        shutil.rmtree(folder)


def wait_for_lines(path, count, process, timeout, log):
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
