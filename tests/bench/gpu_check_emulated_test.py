#!/usr/bin/env python3
"""scripts/gpu-check with the real programs of an emulated build. Planted faults
(tests/framework/cuda/planted_faults_test.cpp) are distinguished and named: a kernel that waits forever, a test that
stops printing, one that crashes, and one that is only slow. All other tests run, and so does the benchmark. The
argument: the folder of the build's programs."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOST, HANG, CRASH, SLOW = ("Heads/HopperAttention.LargeScores/Of64", "GpuActivationTest.Agree", "GpuRopeTest.Table",
                           "Heads/HopperAttention.LargeScores/Of128")


class EmulatedBundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.bundle = cls.folder / "bundle"
        (cls.bundle / "bin").mkdir(parents=True)
        for program in ("gpu_tests", "gpu_tests_bounded", "gpu_mpi_tests", "gpu_bench", "train", "check"):
            (cls.bundle / "bin" / program).symlink_to(PROGRAMS / program)
        for script, folder in (("scripts/bundle.d/run", "."), ("scripts/gpu-check", "."), ("scripts/launch", "bin")):
            shutil.copy(SOURCE / script, cls.bundle / folder)
        for script in ("steps.py", "step_baseline.py"):
            shutil.copy(SOURCE / "bench/gpu" / script, cls.bundle)
        (cls.bundle / "configs").symlink_to(SOURCE / "configs")
        (cls.bundle / "data").mkdir()
        subprocess.run([PROGRAMS / "prepare", "--input", SOURCE / "framework", "--output", cls.bundle / "data/sources.h5"],
                       check=True, stderr=subprocess.DEVNULL)
        (cls.bundle / "needs").touch()
        (cls.bundle / "ABOUT").write_text("preset bundle-emulated\n", encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def check(self, planted, *arguments, **variables):
        out = self.folder / "out"
        begun = time.monotonic()
        done = subprocess.run([self.bundle / "gpu-check", *arguments], text=True, timeout=280, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | variables | {"OUT": str(out), "RINGTRAIN_PLANT": planted})
        self.seconds = time.monotonic() - begun
        report = json.loads((out / "gpu-check.json").read_text(encoding="utf-8"))
        return done, report, {part["part"]: part for part in report["parts"]}

    def test_each_planted_fault_is_named_as_what_it_is(self):
        tests = "GpuActivationTest.*:GpuRopeTest.*:*HopperAttention.LargeScores*"
        planted = f"lost:{LOST},hang:{HANG},crash:{CRASH},slow:{SLOW}"
        done, report, parts = self.check(planted, "--short", "--tests", tests, "--bounded", "--stall", "6", "--seconds",
                                         "40")
        self.assertEqual(done.returncode, 1, done.stdout)
        troubles = dict(line.removeprefix("GPU tests: ").split(" ", 1) for line in report["troubles"])
        self.assertEqual(troubles.keys(), {LOST, HANG, CRASH, SLOW}, done.stdout)
        self.assertRegex(troubles[LOST],
                         r"^HANGS: attention forward \(Hopper\) hangs: in block \d+, after \d+ cycles, warp")
        self.assertEqual(troubles[HANG], "HUNG: no output for 6 s")
        self.assertRegex(troubles[CRASH], r"^CRASHED: code 134")
        self.assertEqual(troubles[SLOW], "was running when the part's time was up")
        # Slow comes last; all others have run before it.
        self.assertRegex(parts["GPU tests"]["detail"], "^1 passed, 1 failed, 0 skipped, 3 did not end; not done in time")
        self.assertLess(self.seconds, 70)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_faults_between_processes_are_named(self):
        for fault, words in (("wrong", "1x2 is WRONG: losses or state are not those of thread ranks"),
                             ("hang", r"1x2 \(2\) ends with 6: train: .*rank . of 2 waited 15 s "),
                             ("leave", r"1x2 \(2\) ends with 6: train: .*rank 1 of 2 .*has ended without a message")):
            with self.subTest(fault):
                done, report, parts = self.check("", "--processes", "--seconds", "70",
                                                 CUDA_EMULATOR_NCCL_FAULT=f"1:9:{fault}")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertEqual(parts["processes"]["result"], "failed", done.stdout)
                self.assertRegex(report["troubles"][0], f"^processes: {words}", done.stdout)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_processes_without_faults_pass_on_a_card_of_their_own_and_on_one_that_they_share(self):
        for devices in ("1", "4"):
            with self.subTest(devices):
                done, report, parts = self.check("", "--processes", CUDA_EMULATOR_DEVICES=devices)
                self.assertEqual((done.returncode, report["troubles"]), (0, []), done.stdout)
                self.assertRegex(parts["processes"]["detail"], "; a killed or stopped rank ends all ranks; right: ")
                self.assertRegex(parts["processes' exchanges"]["detail"], "^[1-9][0-9]+ passed, 0 failed, 0 skipped$")

    def test_without_faults_all_is_well(self):
        tests = "GpuActivationTest.*:GpuRopeTest.*:*HopperAttention.LargeScores*"
        done, report, parts = self.check("", "--short", "--tests", tests, "--bounded")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(report["troubles"], [])
        self.assertEqual(parts["GPU tests"]["detail"], "5 passed, 0 failed, 0 skipped")
        self.assertEqual(parts["machine, attention"]["result"], "passed")
        self.assertIn("NOTHING MEASURED HERE COUNTS", done.stdout)

    def test_steps_are_timed_and_a_python_without_pytorch_is_skipped(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in (("nvidia-smi", "while date '+%Y/%m/%d %H:%M:%S.%3N, 1500, 690'; do sleep 0.02; done"),
                           ("python", "echo no PyTorch in this Python; exit 77")):
            (tools / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (tools / name).chmod(0o755)
        done = subprocess.run([sys.executable, self.bundle / "steps.py", "--tiny", "--only", "1B, 8K x 1", "--json",
                               tools / "steps.json"], stdout=subprocess.PIPE, text=True, timeout=200, check=False,
                              env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}",
                                                "RINGTRAIN_PYTHON": str(tools / "python")})
        self.assertEqual(done.returncode, 3, done.stdout)
        report = json.loads((tools / "steps.json").read_text(encoding="utf-8"))
        self.assertEqual(report["skipped"], ["1B, 8K x 1, PyTorch: code 77: no PyTorch in this Python"] * 2)
        self.assertEqual([(row["who"], row["mhz"], row["watts"]) for row in report["rows"]], [("ours", 1500, 690)] * 2)
        for row in report["rows"]:
            self.assertAlmostEqual(row["tokens_per_second"] * row["seconds"], 8192)
            self.assertGreater(row["first_step_seconds"], row["seconds"] / 2)


if __name__ == "__main__":
    unittest.main()
