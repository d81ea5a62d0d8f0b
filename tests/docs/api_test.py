#!/usr/bin/env python3
"""Every public function of the headers that docs/library.md lists has a comment: scripts/api generates their page, and
finds one without a comment. Skipped if there is no doxygen."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_page(checkout, folder):
    return subprocess.run([str(checkout / "scripts/api"), str(folder)], cwd=checkout, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)


class Api(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="ringtrain-api-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_every_public_function_has_a_comment(self):
        result = make_page(ROOT, self.folder / "page")
        self.assertEqual(result.returncode, 0, result.stdout)
        pages = "".join(path.read_text() for path in (self.folder / "page/html").rglob("*.html"))
        for name in ("linear_backward_weight", "AttentionOverRing", "check_gradient", "begin_gradient",
                     "transformer_with", "prepare_run"):
            self.assertIn(name, pages)

    def test_a_function_without_one_is_named(self):
        checkout = self.folder / "checkout"
        for name in ("scripts", "ringtrain", "docs", "framework", "kernels", "parallel", "data", "layers", "train"):
            shutil.copytree(ROOT / name, checkout / name)
        for header, comment in (("kernels/matmul.h", "linear_backward_input"),
                                ("parallel/parameter_store.h", "release")):
            path = checkout / header
            text = path.read_text()
            bare = re.sub(rf"((?: *///[^\n]*\n)+)( *void {comment}\()", r"\2", text)
            self.assertNotEqual(bare, text)
            path.write_text(bare)
        result = make_page(checkout, self.folder / "page")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("linear_backward_input", result.stdout)
        self.assertIn("Member release(int bucket)", result.stdout)
        self.assertIn("2 public functions have no comment", result.stdout)


if __name__ == "__main__":
    if shutil.which("doxygen") is None:
        print("SKIPPED: there is no doxygen (scripts/install-deps api)")
        sys.exit(77)
    unittest.main(verbosity=2)
