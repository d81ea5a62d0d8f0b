"""Python environments under build/ with packages of PyPI, made once and kept."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with(name, packages):
    """Returns the interpreter of build/NAME with these packages ("tokenizers==0.23.3"), made anew if one is missing.
    Returns None, with a message, if it cannot be made."""
    folder = ROOT / "build" / name
    python = folder / "bin" / "python"
    wanted = "".join(f"{package}\n" for package in packages)
    stamp = folder / "packages"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return str(python)
    print(f"==> making build/{name} with {', '.join(packages)}", flush=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "--quiet", *packages],
    ):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            print(f"{', '.join(packages)} cannot be had: {(result.stdout + result.stderr).strip()[-500:]}")
            return None
    stamp.write_text(wanted, encoding="utf-8")
    return str(python)
