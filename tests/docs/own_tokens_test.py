#!/usr/bin/env python3
"""docs/data.md's example makes a token file that train accepts, and the page correctly describes the targets.

RINGTRAIN_BIN names the folder of the programs. Ends with 77 (skipped) if no Python has h5py, numpy, and xxhash."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages  # noqa: E402  (the path above comes first)

BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])


def run(command, folder):
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False)


def python():
    """Return an interpreter with the packages that the example imports; None if there is none."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            if run([candidate, "-c", "import h5py, numpy, xxhash"], ".").returncode == 0:
                return candidate
        except OSError:
            pass
    return None


def main():
    interpreter = python()
    if interpreter is None:
        print("SKIPPED: no Python here has h5py, numpy and xxhash (scripts/install-deps tests)")
        return 77
    blocks = pages.blocks(pages.ROOT / "docs" / "data.md")
    example, command = [block for block in blocks if block.language in ("python", "sh")]
    code = [line for line in example.text.splitlines() if line.strip()]
    assert len(code) <= 16, f"the example has {len(code)} lines"
    with tempfile.TemporaryDirectory(prefix="own-") as folder:
        made = run([interpreter, "-c", example.text], folder)
        assert made.returncode == 0, made.stdout
        pathlib.Path(folder, "build").mkdir()
        pathlib.Path(folder, "build", "release").mkdir()
        pathlib.Path(folder, "build", "release", "bin").symlink_to(BIN)
        pathlib.Path(folder, "configs").symlink_to(pages.ROOT / "configs")
        trained = run(["bash", "-c", command.text], folder)
        assert trained.returncode == 0, trained.stdout
        lines = [json.loads(line) for line in pathlib.Path(folder, "runs/own/metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if line.get("kind") == "train"]
        assert len(losses) == 3 and all(loss > 0 for loss in losses), losses
        # Damage is detected, so the file accepted above was read and checked.
        data = pathlib.Path(folder, "own.h5").read_bytes()
        pathlib.Path(folder, "own.h5").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        damaged = run(["bash", "-c", command.text.replace("runs/own", "runs/damaged")], folder)
        assert damaged.returncode == 3, (damaged.returncode, damaged.stdout)
    print("the example's file trains")
    return 0


if __name__ == "__main__":
    sys.exit(main())
