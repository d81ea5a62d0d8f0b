"""The Python of tests that need packages of PyPI: the one that RINGTRAIN_PYTHON names, or an environment under build/,
which is made once and kept.

usage: tests/support/environment.py NAME PACKAGE...   makes build/NAME, and prints its interpreter
"""

import fcntl
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with(name, packages):
    """Returns the interpreter of build/NAME with these packages ("tokenizers==0.23.3"), made anew if one is missing.
    Returns None, with a message, if it cannot be made. While one process makes it, others wait."""
    folder = ROOT / "build" / name
    python = folder / "bin" / "python"
    wanted = "".join(f"{package}\n" for package in packages)
    stamp = folder / "packages"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return str(python)
        print(f"==> making build/{name} with {', '.join(packages)}", file=sys.stderr, flush=True)
        for command in (
            [sys.executable, "-m", "venv", "--clear", folder],
            [python, "-m", "pip", "install", "--quiet", *packages],
        ):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                print(f"{', '.join(packages)} cannot be had: {result.stderr.strip()[-500:]}", file=sys.stderr)
                return None
        stamp.write_text(wanted, encoding="utf-8")
    return str(python)


def use(name="", packages=()):
    """Runs this program with the Python that RINGTRAIN_PYTHON names, or else with build/NAME's if there is a name, and
    ends with its exit status: 77 (skipped) if that cannot be made. Returns if this Python is to run it."""
    if os.environ.get("RINGTRAIN_PYTHON_RUNS"):
        return
    python = os.environ.get("RINGTRAIN_PYTHON") or (name and python_with(name, packages))
    if python:
        environment = {**os.environ, "RINGTRAIN_PYTHON_RUNS": "1"}
        sys.exit(subprocess.run([python, *sys.argv], env=environment, check=False).returncode)
    if name:
        sys.exit(77)


def skip(error):
    """Ends as skipped (77), with the ImportError of the missing package."""
    print(f"skipped: {error}; RINGTRAIN_PYTHON may name a Python that has it")
    sys.exit(77)


if __name__ == "__main__":
    print(python_with(sys.argv[1], sys.argv[2:]) or sys.exit(1))
