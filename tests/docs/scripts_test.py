#!/usr/bin/env python3
"""scripts/completion.bash completes what the programs know, scripts/install-deps handles missing packages, scripts
remove only what they made, scripts/lint judges the subjects of commits, and the patches of scripts/mutate fit the code.

RINGTRAIN_BIN names the folder of the programs."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
FUZZERS = ["fuzz_" + path.name.removesuffix("_fuzz.cpp") for path in (ROOT / "tests/fuzz").glob("*_fuzz.cpp")]


def bash(script, **environment):
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)


class Completion(unittest.TestCase):
    def complete(self, *words):
        """Return bash's completions for the last word."""
        line = " ".join(f"'{word}'" for word in words)
        script = (f"source scripts/completion.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                  f"spec=$(complete -p '{pathlib.Path(words[0]).name}'); spec=${{spec#*-F }}; "
                  f"${{spec%% *}} '{words[0]}' && printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        result = bash(script)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout.split()

    def test_flags(self):
        self.assertEqual(self.complete(str(BIN / "train"), "--dry"), ["--dry-run"])
        self.assertIn("--context-lengths", self.complete(str(BIN / "evaluate"), "--"))
        self.assertEqual(self.complete(str(BIN / "prepare"), "--validation-f"), ["--validation-fraction"])

    def test_every_program_is_completed(self):
        helped = bash(f"{BIN}/ringtrain --help").stdout
        commands = [line.split()[0] for line in helped.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
        self.assertIn("export", commands)
        for command in commands:
            with self.subTest(command):
                if command != "launch":  # scripts/launch, which completes another command's words
                    self.assertIn("--help", self.complete(str(BIN / command), "--h"))
                self.assertIn(command, self.complete(str(BIN / "ringtrain"), command))

    def test_the_shells_own_export_has_variables(self):
        self.assertIn("HOME", self.complete("export", "HOM"))
        self.assertEqual(self.complete(str(BIN / "export"), "--max"), ["--max-shard-size"])

    def test_keys_and_their_words(self):
        train = str(BIN / "train")
        self.assertEqual(self.complete(train, "--set", "mesh.l"), ["mesh.layout="])
        self.assertEqual(self.complete(train, "--set", "mesh.layout", "=", "z"), ["zigzag"])
        self.assertEqual(self.complete(train, "--set", "training.dtype", "=", "b"), ["bfloat16"])
        self.assertEqual(self.complete(train, "--set", "training.steps", "="), [])
        self.assertEqual(self.complete(str(BIN / "evaluate"), "--set", "model.rope_th"), ["model.rope_theta="])

    def test_paths(self):
        self.assertIn("configs/tiny.yaml", self.complete(str(BIN / "train"), "--config", "configs/t"))


class Package(unittest.TestCase):
    def started(self, flags, *words, name="link", **environment):
        """Return which build starts on a processor with these flags, with its arguments; name: the called command."""
        with tempfile.TemporaryDirectory() as temporary:
            tree = pathlib.Path(temporary)
            (tree / "bin").mkdir()
            shutil.copy(ROOT / "scripts/package.d/ringtrain", tree / "bin")
            (tree / "bin/train").symlink_to("ringtrain")
            (tree / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: sse\n")
            for build in ("x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"):
                folder = tree / f"libexec/ringtrain-{build}"
                folder.mkdir(parents=True)
                (folder / "ringtrain").write_text(f'#!/bin/sh\necho {build} "$@"\n')
                (folder / "ringtrain").chmod(0o755)
            (tree / "link").symlink_to(tree / "bin/ringtrain")
            return bash(f"exec '{tree}/{name}' {' '.join(words)}", RINGTRAIN_CPUINFO=str(tree / "cpuinfo"),
                        **environment).stdout.strip()

    def test_the_processor_chooses_the_build(self):
        v3 = "fpu sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe"
        v4 = v3 + " avx512f avx512bw avx512cd avx512dq avx512vl"
        self.assertEqual(self.started(v3, "train", "--resume"), "x86-64-v3 train --resume")
        self.assertEqual(self.started(v3 + " avx512f avx512_bf16", "train"), "x86-64-v3 train")
        self.assertEqual(self.started(v4, "train"), "x86-64-v4 train")
        self.assertEqual(self.started(v4 + " avx512_bf16", "--version"), "x86-64-v4-bf16 --version")
        self.assertEqual(self.started(v4, "train", name="bin/ringtrain"), "x86-64-v4 train")
        self.assertEqual(self.started(v4, "--dry-run", name="bin/train"), "x86-64-v4 train --dry-run")
        self.assertEqual(self.started(v4, "check", RINGTRAIN_BUILD="x86-64-v3"), "x86-64-v3 check")
        self.assertIn("needs an x86-64 processor with AVX2", self.started("fpu sse4_2 avx", "train"))


class MisspeltFlags(unittest.TestCase):
    def test_the_nearest_one_is_named(self):
        for command, meant in (("train --confg x.yaml", "--config"), ("train --resum", "--resume"),
                               ("evaluate --checkpont a --data b", "--checkpoint"),
                               ("prepare --input a --outptu=b", "--output"), ("train --quantize", None)):
            result = bash(f"{BIN}/{command}")
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertEqual(re.findall(r"did you mean (.*?)\?", result.stdout), [meant] if meant else [])


class InstallDeps(unittest.TestCase):
    """With fake dpkg-query and apt-get: `lacks` is not installed, `refused` is unavailable."""

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

    def test_nothing_missing_asks_for_nothing(self):
        result, calls = self.install([])
        self.assertEqual((result.returncode, calls), (0, []), result.stdout)

    def test_an_unavailable_baseline_is_left_out_and_reported(self):
        result, calls = self.install(["libdnnl-dev", "python3-venv"], refused=["libdnnl-dev"])
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("Left out, because they are not available: libdnnl-dev", result.stdout)
        installs = [call for call in calls if " install " in call]
        self.assertTrue(installs[0].endswith(" python3-venv"), calls)
        self.assertTrue(installs[1].endswith(" libdnnl-dev"), calls)

    def test_what_is_needed_must_be_had(self):
        result, _ = self.install(["python3-venv"], refused=["python3-venv"])
        self.assertNotEqual(result.returncode, 0)


class Removals(unittest.TestCase):
    """Scripts of a checkout with only fake programs."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.checkout = pathlib.Path(temporary.name)
        shutil.copytree(ROOT / "scripts", self.checkout / "scripts")
        for folder in ("configs", "framework", "bench", "tests"):
            (self.checkout / folder).symlink_to(ROOT / folder)
        (self.checkout / "other/scripts").mkdir(parents=True)  # where CDPATH would lead

    def stand_ins(self, folder, names, body=None):
        (self.checkout / folder).mkdir(parents=True)
        for name in names:
            path = self.checkout / folder / name
            if body is None:
                shutil.copy("/bin/true", path)
            else:
                path.write_text(f"#!/bin/bash\n{body}\n")
                path.chmod(0o755)

    def run_script(self, command, prebuilt="1"):
        return bash(f"cd {self.checkout} && PATH={self.checkout}/tools:$PATH timeout 120 scripts/{command}",
                    RINGTRAIN_PREBUILT=prebuilt, CDPATH=str(self.checkout / "other"))

    def expect_refused(self, command, kept, sentence):
        before = kept.read_text()
        result = self.run_script(command)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertEqual(kept.read_text(), before)
        self.assertIn(sentence, result.stdout)

    def test_a_bundle_replaces_an_earlier_one_and_nothing_else(self):
        programs = ["ringtrain", "plan", "report", "gpu_tests", "gpu_tests_bounded", "gpu_mpi_tests", "gpu_bench"]
        self.stand_ins("build/bundle/bin", [*programs, "prepare"])
        bundle = self.checkout / "bundle"
        for _ in range(2):  # made, and made again in the same folder
            result = self.run_script("bundle bundle")
            self.assertEqual(result.returncode, 0, result.stdout)
            (bundle / "tools/xz").write_text('#!/bin/sh\nsleep 1\nexec xz "$@"\n')
            call = f"{bundle}/run --libraries >/dev/null"  # the first one unpacks the programs
            self.assertEqual(bash(f"{call} & {call}; echo $?; wait $!; echo $?").stdout, "7\n7\n")
        results = bundle / "bench.json"
        results.write_text("what gpu-check measured")
        self.expect_refused("bundle bundle", results, "holds ./bench.json, which scripts/bundle did not make")
        own = self.checkout / "own"
        own.mkdir()
        (own / "needs").write_text("a user's list")
        self.expect_refused("bundle own", own / "needs", "own may hold files that scripts/bundle did not make")
        earlier = self.checkout / "runs/quickstart"  # made by another script, and now with a user's run
        earlier.mkdir(parents=True)
        (earlier / ".made-by-ringtrain").write_text("made by scripts/quickstart\n")
        self.expect_refused("bundle runs/quickstart", earlier / ".made-by-ringtrain",
                            "runs/quickstart may hold files that scripts/bundle did not make")
        (self.checkout / "link").symlink_to(own)
        self.expect_refused("bundle link", own / "needs", "link is not a folder")

    def test_a_failed_run_is_named_and_a_path_is_relative_to_the_callers_folder(self):
        self.stand_ins("tools", ["git"], "echo 0")
        self.stand_ins("build/release/bin", ["train", "prepare"])
        self.stand_ins("other/old", ["train", "prepare"], '[ "${0##*/}" = prepare ]')
        self.assertIn("error: llama-single (old) did not run", self.run_script("same-bits HEAD other/old").stdout)
        result = bash(f"cd {self.checkout}/other && ../scripts/report-pictures run")
        self.assertIn("error: other/run is not a run's folder", result.stdout)

    def test_a_build_without_tests_is_configured_again(self):
        self.stand_ins("tools", ["cmake", "dpkg-query"], 'echo installed; echo "$*" >>log')
        self.stand_ins("build/release/bin", ["data_tests"])
        (self.checkout / "build/release/build.ninja").write_text("build train: phony bin/train\n")
        result = self.run_script("dev data", prebuilt="")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("-DRINGTRAIN_TESTS=ON", (self.checkout / "log").read_text())

    def test_runs_of_a_user_are_not_an_earlier_demonstration(self):
        self.stand_ins("build/release/bin", ["train", "evaluate", "prepare"])
        for script in ("quickstart", "recall"):
            own = self.checkout / "runs" / script / "config.yaml"
            own.parent.mkdir(parents=True)
            own.write_text("a run of mine")
            self.expect_refused(script, own, f"runs/{script} may hold files that scripts/{script} did not make")

    def test_fuzzing_does_not_disturb_other_fuzzers(self):
        log = self.checkout / "log"
        self.stand_ins("build/fuzz/bin", FUZZERS,
                       f'touch "$RINGTRAIN_FUZZ_FOLDER/input" && echo "$RINGTRAIN_FUZZ_FOLDER" >>{log}')
        with tempfile.TemporaryDirectory(prefix="ringtrain-fuzz-", dir="/dev/shm") as older, \
                tempfile.TemporaryDirectory(prefix="ringtrain-fuzz.", dir="/dev/shm") as other:
            result = self.run_script("fuzz 1 1")
            self.assertTrue(pathlib.Path(older).exists() and pathlib.Path(other).exists(), result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout)
        folders = log.read_text().splitlines()
        self.assertEqual((len(folders), len(set(folders))), (len(FUZZERS), len(FUZZERS)))  # several run at a time
        self.assertFalse(any(pathlib.Path(folder).parent.exists() for folder in folders))

    def test_a_finding_ends_fuzzing_with_an_error(self):
        self.stand_ins("build/fuzz/bin", FUZZERS, '[ "${0##*/}" != fuzz_report ]')
        self.assertNotEqual(self.run_script("fuzz 1 1").returncode, 0)


class FetchedModel(unittest.TestCase):
    def test_its_whole_hash_counts(self):
        specification = importlib.util.spec_from_file_location("make_smollm2", ROOT / "tests/models/make_smollm2.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        nearly = mock.Mock()
        nearly.return_value.hexdigest.return_value = "b179c952" + 56 * "0"  # the first 32 bits are correct
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "model.gguf").write_bytes(b"another model")
            with mock.patch.object(module.hashlib, "sha256", nearly), self.assertRaises(SystemExit) as ended:
                module.fetch_gguf(folder)
        self.assertIn("it is another model, or damaged", str(ended.exception))


class Subjects(unittest.TestCase):
    def judged(self, *subjects):
        """Return those that are refused."""
        result = bash(f"printf '%s\\n' {' '.join(map(repr, subjects))} | scripts/lint.d/subjects -")
        self.assertEqual(result.returncode, 1 if "error: " in result.stdout else 0, result.stdout)
        return [line for line in result.stdout.splitlines() if not line.startswith("error: ")]

    def test_they_begin_large_and_are_short_and_no_sentence(self):
        self.assertEqual(self.judged("Add a thing", "Drop " + 67 * "x"), [])
        wrong = ["add a thing", "Add a thing.", "Drop " + 68 * "x"]
        self.assertEqual(self.judged("Add a thing", *wrong), wrong)

    def test_a_tree_without_a_repository_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "scripts", pathlib.Path(folder) / "scripts")
            self.assertEqual(bash(f"{folder}/scripts/lint.d/subjects").returncode, 0)


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
