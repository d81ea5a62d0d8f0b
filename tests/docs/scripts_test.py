#!/usr/bin/env python3
"""scripts/completion.bash completes what the programs know, no script takes what it does not know, scripts/install-deps does
without what it can, and the patches of scripts/mutate fit the code.

RINGTRAIN_BIN names the folder of the programs."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])


def bash(script, **environment):
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)


class Completion(unittest.TestCase):
    def complete(self, *words):
        """Return what bash would offer for the last word."""
        line = " ".join(f"'{word}'" for word in words)
        script = (f"source scripts/completion.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                  f"_ringtrain '{words[0]}' && printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        result = bash(script)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout.split()

    def test_flags(self):
        self.assertEqual(self.complete(str(BIN / "train"), "--dry"), ["--dry-run"])
        self.assertIn("--context-lengths", self.complete(str(BIN / "evaluate"), "--"))
        self.assertEqual(self.complete(str(BIN / "prepare"), "--validation-f"), ["--validation-fraction"])

    def test_keys_and_their_words(self):
        train = str(BIN / "train")
        self.assertEqual(self.complete(train, "--set", "mesh.l"), ["mesh.layout="])
        self.assertEqual(self.complete(train, "--set", "mesh.layout", "=", "z"), ["zigzag"])
        self.assertEqual(self.complete(train, "--set", "training.dtype", "=", "b"), ["bfloat16"])
        self.assertEqual(self.complete(train, "--set", "training.steps", "="), [])

    def test_paths(self):
        self.assertIn("configs/tiny.yaml", self.complete(str(BIN / "train"), "--config", "configs/t"))


class MisspeltFlags(unittest.TestCase):
    def test_the_nearest_one_is_named(self):
        for command, meant in (("train --confg x.yaml", "--config"), ("train --resum", "--resume"),
                               ("evaluate --checkpont a --data b", "--checkpoint"),
                               ("prepare --input a --outptu=b", "--output")):
            result = bash(f"{BIN}/{command}")
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(f"did you mean {meant}?", result.stdout)

    def test_what_is_like_none_has_no_advice(self):
        result = bash(f"{BIN}/train --quantize")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertNotIn("did you mean", result.stdout)


class UnknownArguments(unittest.TestCase):
    def test_no_script_runs_with_them(self):
        scripts = [path for folder in ("scripts", "bench") for path in sorted((ROOT / folder).iterdir())
                   if path.is_file() and os.access(path, os.X_OK)]
        self.assertGreater(len(scripts), 10)
        for script in scripts:
            result = bash(f"timeout 20 {script} --nonsense")
            self.assertIn(result.returncode, (1, 2), f"{script}: {result.stdout}")

    def test_names_of_parts_are_known(self):
        for command in ("mutate no-such-mutation", "torture no-such-part", "dev no-such-floor", "fuzz no-number",
                        "install-deps no-such-set"):
            result = bash(f"timeout 20 scripts/{command}")
            self.assertIn(result.returncode, (1, 2), f"{command}: {result.stdout}")
            self.assertIn(command.split()[1], result.stdout)


class InstallDeps(unittest.TestCase):
    """With stand-ins for dpkg-query and apt-get: `lacks` is not installed, `refused` cannot be had."""

    def install(self, lacks, refused=()):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            stand_ins = {
                "dpkg-query": f'case " {" ".join(lacks)} " in *" ${{!#}} "*) exit 1 ;; esac; echo installed',
                "apt-get": f'echo "apt-get $*" >>{folder}/log; for p in {" ".join(refused)} ""; do '
                           'case " $* " in *" $p "*) [ -z "$p" ] || exit 100 ;; esac; done',
                "id": "echo 0",
            }
            for name, body in stand_ins.items():
                (folder / name).write_text(f"#!/bin/bash\n{body}\n")
                (folder / name).chmod(0o755)
            result = bash("scripts/install-deps bench", PATH=f"{folder}:{os.environ['PATH']}", RINGTRAIN_PREBUILT="")
            log = folder / "log"
            return result, log.read_text().splitlines() if log.exists() else []

    def test_nothing_missing_asks_nobody(self):
        result, calls = self.install([])
        self.assertEqual((result.returncode, calls), (0, []), result.stdout)

    def test_a_yardstick_that_cannot_be_had_is_left_out_and_told(self):
        result, calls = self.install(["libdnnl-dev", "libbenchmark-dev"], refused=["libdnnl-dev"])
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("Left out, as they cannot be had: libdnnl-dev", result.stdout)
        installs = [call for call in calls if " install " in call]
        self.assertTrue(installs[0].endswith(" libbenchmark-dev"), calls)
        self.assertTrue(installs[1].endswith(" libdnnl-dev"), calls)

    def test_what_is_needed_must_be_had(self):
        result, _ = self.install(["libbenchmark-dev"], refused=["libbenchmark-dev"])
        self.assertNotEqual(result.returncode, 0)


class Mutations(unittest.TestCase):
    def test_each_patch_still_applies(self):
        patches = sorted((ROOT / "tests/mutations").glob("*.patch"))
        self.assertGreater(len(patches), 30)
        for patch in patches:
            with self.subTest(patch.name):
                result = bash(f"git apply --check {patch}")
                self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
