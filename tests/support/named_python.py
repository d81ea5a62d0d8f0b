"""Tests that need packages which this system's Python may lack: another one is named by RINGTRAIN_PYTHON."""
import os
import subprocess
import sys


def use():
    """Runs this very program by the Python that RINGTRAIN_PYTHON names, and ends with its exit status."""
    python = os.environ.get("RINGTRAIN_PYTHON")
    if python and not os.environ.get("RINGTRAIN_PYTHON_RUNS"):
        sys.exit(subprocess.run([python, *sys.argv], env={**os.environ, "RINGTRAIN_PYTHON_RUNS": "1"}).returncode)


def skip(error):
    """Ends as skipped (77), with the ImportError of what is missing."""
    print(f"skipped: {error}; RINGTRAIN_PYTHON may name a Python that has it")
    sys.exit(77)
