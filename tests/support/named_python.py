"""Tests that need packages which this system's Python may not have: RINGTRAIN_PYTHON names another one."""
import os
import subprocess
import sys


def use():
    """Runs this program with the Python that RINGTRAIN_PYTHON names, and ends with its exit status."""
    python = os.environ.get("RINGTRAIN_PYTHON")
    if python and not os.environ.get("RINGTRAIN_PYTHON_RUNS"):
        sys.exit(subprocess.run([python, *sys.argv], env={**os.environ, "RINGTRAIN_PYTHON_RUNS": "1"}).returncode)


def skip(error):
    """Ends as skipped (77), with the ImportError of the missing package."""
    print(f"skipped: {error}; RINGTRAIN_PYTHON may name a Python that has it")
    sys.exit(77)
