#!/usr/bin/env python3
"""Runs every command of README.md and docs/usage.md, as on the pages, in a copy of the checkout.

All `sh` blocks of a page run in order, in one copy, with the replacements that the page marks (pages.py). A `text`
block shows what the block before it prints: its lines must be printed in this order, `...` stands for any lines, and
numbers need not be the same unless the block is marked exact. RINGTRAIN_BIN names the folder of the programs.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages  # noqa: E402  (the path above comes first)

BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
TIMEOUT = 900


def make_copy(folder):
    """Makes what a fresh clone has after a build, as far as the pages' commands need it."""
    for name in ("configs", "scripts", "framework", "kernels", "layers", "reference", "train"):
        shutil.copytree(pages.ROOT / name, folder / name)
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "bin").symlink_to(BIN)
    (folder / "tmp").mkdir()


def environment(folder):
    return {**os.environ, "RINGTRAIN_PREBUILT": "1", "TMPDIR": str(folder / "tmp"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ASAN_OPTIONS": "detect_leaks=0"}


def can_run(block):
    """Return whether the machine has what the block needs; for mpirun, also whether the build has MPI."""
    program = block.mark("needs")
    if program is None:
        return True
    if program == "mpirun" and os.environ.get("RINGTRAIN_MPI", "TRUE").upper() != "TRUE":
        return False
    return shutil.which(program) is not None


def shape(line, exact):
    line = " ".join(line.split())
    return line if exact else re.sub(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?[KMGT]?\b", "#", line)


def missing_line(shown, printed, exact):
    """Return the first line of shown that is missing in printed after the lines before it; None if all exist."""
    rest = iter(shape(line, exact) for line in printed.splitlines())
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        if not any(candidate.startswith(shape(line, exact)) for candidate in rest):
            return line
    return None


class Commands(unittest.TestCase):
    def run_page(self, name):
        page = pages.ROOT / name
        with tempfile.TemporaryDirectory(prefix="pages-") as temporary:
            folder = pathlib.Path(temporary)
            make_copy(folder)
            printed, commands = None, 0
            for block in pages.blocks(page):
                for file, old, new in block.replacements():
                    if file is not None:
                        path = folder / file
                        path.write_text(pages.replaced(path.read_text(), [(old, new)], block))
                if block.mark("file"):
                    (folder / block.mark("file")).write_text(block.small())
                elif block.language == "sh":
                    commands += len(block.text.splitlines())
                    printed = self.run_block(block, folder) if can_run(block) else None
                    if printed is None:
                        print(f"SKIPPED {block}: there is no {block.mark('needs')}", flush=True)
                elif block.language == "text" and printed is not None:
                    line = missing_line(block.small(), printed, block.mark("exact") is not None)
                    self.assertIsNone(line, f"{block}: not what is printed:\n{line}\nprinted:\n{printed}")
                elif block.language not in ("text", "yaml"):
                    self.fail(f"{block}: a block of {block.language or 'no language'}: is it a command?")
            self.assertGreater(commands, 0)

    def run_block(self, block, folder):
        script = "set -euo pipefail\n" + block.small()
        result = subprocess.run(["bash", "-c", script], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)
        printed = result.stdout.decode(errors="replace")
        self.assertEqual(result.returncode, 0, f"{block} ended with {result.returncode}:\n{script}\n{printed}")
        return printed

    def test_the_readme(self):
        self.run_page("README.md")

    def test_the_usage_page(self):
        self.run_page("docs/usage.md")


class Judging(unittest.TestCase):
    def test_a_shown_line_must_be_printed_in_its_place(self):
        printed = "a 1.5K tokens/s 3s left\nsaved x/step-00000010 in 0.14 s\nb -2 [0.1, 3]\n"
        self.assertIsNone(missing_line("a 20 tokens/s\n...\nb 7 [1, 2]\n", printed, False))
        self.assertEqual(missing_line("b 7 [1, 2]\na 20 tokens/s\n", printed, False), "a 20 tokens/s")
        self.assertEqual(missing_line("saved x/step-00000020 in 1 s\n", printed, True), "saved x/step-00000020 in 1 s")
        self.assertEqual(missing_line("gone\n", printed, False), "gone")

    def test_a_mark_that_fits_nothing_is_an_error(self):
        with self.assertRaises(ValueError):
            pages.replaced("steps: 20", [("steps: 30", "steps: 3")], "here")


if __name__ == "__main__":
    unittest.main(verbosity=2)
