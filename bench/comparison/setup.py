"""Prepares a comparison, with all files under build/: our programs, the baseline's environment, a token file."""
import os
import pathlib
import random
import subprocess
import sys

from comparison import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import environment  # noqa: E402  (the path above comes first)

BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", ROOT / "build" / "release" / "bin"))
WORK = ROOT / "build" / "compare"


def run(command):
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{result.stdout}\nerror: {' '.join(map(str, command))} ended with {result.returncode}")


def build():
    machine.say("building the release preset with the benchmarks")
    run(["scripts/install-deps", "bench"])
    # A build folder that includes the tests keeps them.
    tests = [] if (ROOT / "build/release/CMakeCache.txt").exists() else ["-DRINGTRAIN_TESTS=OFF"]
    run(["bash", "-c", f"source scripts/common.sh && configure release -DRINGTRAIN_BENCH=ON {' '.join(tests)} && "
         "build release train prepare compare_worker ring_error tokenizer_probe"])


def baseline_python():
    """Return the interpreter that has PyTorch: RINGTRAIN_PEER_PYTHON, or that of build/venv-peer, which is made if
    missing. Return None, with a message, if that fails: the rows that need it are then not measured."""
    given = os.environ.get("RINGTRAIN_PEER_PYTHON")
    if given:
        return given
    return environment.python_with("venv-peer", ["torch"])  # downloads some GB, once


def token_file():
    """Return a token file of 4M random letters; the tokens do not affect any time. It is made unless there is one that
    is newer than prepare, whose formats may have changed."""
    path = WORK / "text.h5"
    prepare = BIN / "prepare"
    if not path.exists() or path.stat().st_mtime < prepare.stat().st_mtime:
        WORK.mkdir(parents=True, exist_ok=True)
        for stale in (path, WORK / "text.h5.manifest.json"):
            stale.unlink(missing_ok=True)
        text = WORK / "text.txt"
        text.write_text("".join(random.Random(1).choices("abcdefghijklmnop \n", k=4_000_000)), encoding="utf-8")
        run([prepare, "--input", text, "--output", path, "--validation-fraction", "0"])
    return path
