#!/usr/bin/env python3
"""scripts/gpu-check with a bundle of fake programs that hang, crash, fail, and are killed: it continues, names the
cause, limits every part, and the results so far are on the disk."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu-check"

# Replaces `run`: the tests of `plan` (name to behavior), and a gpu_bench that writes rows.
RUN = textwrap.dedent("""\
    #!/usr/bin/env python3
    import fnmatch, json, os, pathlib, signal, sys, time
    here = pathlib.Path(__file__).resolve().parent
    plan = json.loads((here / "plan.json").read_text())
    program, arguments = sys.argv[1], sys.argv[2:]

    def option(name, default=None):
        if name in arguments and not arguments[arguments.index(name) + 1:][:1] == []:
            return arguments[arguments.index(name) + 1]
        return next((a.split("=", 1)[1] for a in arguments if a.startswith(name + "=")), default)

    def tests():
        wanted, _, unwanted = option("--gtest_filter", "*").partition("-")
        match = lambda name, patterns: any(p and fnmatch.fnmatchcase(name, p) for p in patterns.split(":"))
        for name, what in plan["tests"].items():
            if not match(name, wanted) or match(name, unwanted):
                continue
            print(f"[ RUN      ] {name}", flush=True)
            with (here / "portable.txt").open("a") as log:
                log.write(f"{name} {os.environ.get('RINGTRAIN_PORTABLE_ATTENTION', '0')}\\n")
            if what == "hang":
                signal.signal(signal.SIGTERM, lambda *_: (print(f"[  FAILED  ] {name} (1 ms)", flush=True), sys.exit(1)))
                time.sleep(1000)
            if what == "crash":
                os.abort()
            if what == "told":
                print('C++ exception with description "GPU 0: lost; attention hangs: in block 3, warp 1 waits" thrown in it.')
            if what == "slow":
                time.sleep(1)
            print(f"[  FAILED  ] {name} (1 ms)" if what in ("fail", "break", "told") else f"[       OK ] {name} (1 ms)", flush=True)
            if what in ("break", "told"):
                sys.exit(7)

    if program == "--libraries":
        print("libcublasLt.so.13: loader")
        print("libnccl.so.2: not found (optional: NCCL)")
        sys.exit(plan.get("libraries", 0))
    if program == "--with":  # compute-sanitizer --tool T --error-exitcode 9 PROGRAM FILTER
        os.execv(arguments[0], arguments)
    if program == "check":
        assert option("--config").endswith("configs/long_ctx_gpu.yaml") and "model.hidden_size=512" in arguments
        pathlib.Path(option("--output")).write_text("{}")
        verdict = plan.get("check", "right")
        if verdict == "hang":
            time.sleep(1000)
        if verdict == "crash":
            os.abort()
        print("shortened for this check: training.seq_len is 24 instead of 65536")
        print("wrong: layer.0.attention differs first, at sequence 0" if verdict == "wrong" else "right: all 125 tensors")
        sys.exit(5 if verdict == "wrong" else 0)
    if program.startswith("gpu_tests"):
        with (here / "programs.txt").open("a") as log:
            log.write(f"{program} {option('--gtest_filter')}\\n")
        if "--gtest_list_tests" in arguments:
            print("Suite.\\n  test")
        else:
            tests()
            sys.exit(1 if "fail" in plan["tests"].values() else 0)
    if program == "gpu_bench" and "--targets" in arguments:
        print("targets: " + ", ".join(row["name"] for row in json.loads(pathlib.Path(option("--targets")).read_text())["rows"]))
    elif program == "gpu_bench":
        assert "--append" in arguments
        (here / "benches.txt").open("a").write(os.environ.get("RINGTRAIN_PORTABLE_ATTENTION", "0") + "\\n")
        path = pathlib.Path(option("--json"))
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        for group in [arguments[i + 1] for i, a in enumerate(arguments) if a == "--only"]:
            if plan.get("bench", {}).get(group) == "hang":
                time.sleep(1000)
            rows.append({"group": group, "name": "of " + group})
            path.write_text(json.dumps({"rows": rows}))
            print(f"{group}      of {group}", flush=True)
    """)

GOOD = {"GpuNormTest.A": "ok", "X/GpuAttention.B/0": "ok", "HopperAttention.C": "ok", "GpuModel.D": "ok", "GpuRun.E": "ok"}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.bundle, self.out = self.folder / "bundle", self.folder / "out"
        (self.bundle / "bin").mkdir(parents=True)
        (self.bundle / "run").write_text(RUN, encoding="utf-8")
        (self.bundle / "run").chmod(0o755)
        shutil.copy(SCRIPT, self.bundle / "gpu-check")
        (self.bundle / "ABOUT").write_text("preset bundle-emulated\n", encoding="utf-8")

    def start(self, plan, *arguments, path=None):
        (self.bundle / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        environment = os.environ | {"OUT": str(self.out), "PATH": (f"{path}:" if path else "") + os.environ["PATH"]}
        environment.pop("CUDA_HOME", None)
        return subprocess.Popen([self.bundle / "gpu-check", *map(str, arguments)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)

    def check(self, plan, *arguments, path=None):
        begun = time.monotonic()
        process = self.start(plan, *arguments, path=path)
        text = process.communicate(timeout=100)[0]
        self.seconds = time.monotonic() - begun
        return process.returncode, text

    def test_it_replaces_only_the_output_of_an_earlier_one(self):
        self.out.mkdir()
        own = self.out / "bench.json"
        own.write_text("measured by somebody")
        code, text = self.check({"tests": GOOD}, "--short")
        self.assertEqual(code, 2, text)
        self.assertIn("bench.json exists, and no earlier gpu-check made it", text)
        self.assertEqual(own.read_text(), "measured by somebody")
        own.unlink()
        for _ in range(2):
            self.assertNotEqual(self.check({"tests": GOOD}, "--short")[0], 2)

    def report(self):
        return json.loads((self.out / "gpu-check.json").read_text(encoding="utf-8"))

    def parts(self):
        return {part["part"]: part for part in self.report()["parts"]}

    def processes(self):
        """Return the processes that run something of the bundle."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.bundle).encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:  # it has ended
                pass
        return found

    def wait_for(self, process, condition):
        for _ in range(300):
            if condition():
                return
            self.assertIsNone(process.poll())
            time.sleep(0.1)
        self.fail("did not come so far")

    def test_all_is_well(self):
        code, text = self.check({"tests": GOOD})
        self.assertEqual(code, 0, text)
        parts = self.parts()
        self.assertEqual(list(parts)[:5], ["libraries", "Hopper's attention", "portable attention", "attention as called",
                                           "other kernels"])
        for part, passed in ((list(parts)[1], 1), (list(parts)[2], 1), (list(parts)[3], 1), ("other kernels", 1),
                             ("models and runs", 2)):
            self.assertEqual(parts[part]["result"], "passed")
            self.assertEqual(parts[part]["detail"].split()[0], str(passed), part)
        self.assertEqual(parts["memcheck"]["result"], "skipped")
        self.assertEqual((parts["processes"]["result"], parts["processes"]["detail"]), ("skipped", "no NCCL here"))
        self.assertEqual([row["group"] for row in json.loads((self.out / "bench.json").read_text())["rows"]],
                         ["machine", "attention", "ring", "scaling"])
        self.assertIn("targets: of machine, of attention, of ring, of scaling", text)
        self.assertEqual(list(parts)[-1], "check")
        self.assertEqual((parts["check"]["result"], parts["check"]["detail"]), ("passed", "right: all 125 tensors"))
        self.assertEqual(self.report()["state"], "done")
        self.assertLessEqual(len(list(self.out.iterdir())), 10)

    def test_the_last_word_is_checks(self):
        code, text = self.check({"tests": GOOD, "check": "wrong"})
        self.assertEqual(code, 1, text)
        words = "wrong: layer.0.attention differs first, at sequence 0"
        self.assertEqual(self.report()["troubles"], ["check: " + words])
        self.assertEqual(self.parts()["check"]["detail"], words)
        self.assertTrue((self.out / "check.json").exists())
        self.assertIn('--seq-len 24 --dump "${OUT:-.}/check"', text[text.index("What to run next"):])
        code, text = self.check({"tests": GOOD, "check": "crash"})
        self.assertEqual((code, self.report()["troubles"]), (1, ["check: CRASHED: code 134"]), text)
        self.assertNotIn("gpu_tests", text[text.index("What to run next"):])
        # It has its own time, whatever the earlier parts took, and no more.
        slow = {f"GpuModel.T{i}": "slow" for i in range(100)}
        code, text = self.check({"tests": GOOD | slow, "check": "hang"}, "--seconds", 64)
        self.assertIn("not done in time", self.parts()["models and runs"]["detail"])
        self.assertIn("not done in time", self.parts()["check"]["detail"])
        self.assertIn("check: was running when its time was up", self.report()["troubles"])

    def test_what_hangs_crashes_or_breaks_the_card_is_named_and_left_out(self):
        tests = {"GpuNormTest.A": "ok", "GpuNormTest.Hangs": "hang", "GpuNormTest.B": "ok", "GpuMapTest.Crashes": "crash",
                 "GpuMapTest.Breaks": "break", "GpuMapTest.C": "ok", "GpuMapTest.Fails": "fail", "GpuModel.D": "ok"}
        code, text = self.check({"tests": tests}, "--stall", 2)
        self.assertEqual(code, 1, text)
        report = self.report()
        self.assertEqual(sorted(report["troubles"]),
                         ["other kernels: GpuMapTest.Breaks failed", "other kernels: GpuMapTest.Crashes CRASHED: code 134",
                          "other kernels: GpuMapTest.Fails failed",
                          "other kernels: GpuNormTest.Hangs HUNG: no output for 2 s"])
        self.assertIn("3 passed, 2 failed, 0 skipped, 2 did not end", self.parts()["other kernels"]["detail"])
        self.assertEqual(self.parts()["scaling"]["result"], "passed")
        self.assertIn("HUNG", text[text.index("What passed"):])

    def benches(self):
        """Return whether the benchmark ran with the portable attention: "0", "1", or both."""
        path = self.bundle / "benches.txt"
        return set(path.read_text(encoding="utf-8").split()) if path.exists() else set()

    def portable(self):
        """Return the tests that ran, in order, and whether with the portable attention."""
        return [line.split() for line in (self.bundle / "portable.txt").read_text(encoding="utf-8").splitlines()]

    def test_the_portable_attention_has_a_part_of_its_own(self):
        self.check({"tests": GOOD})
        self.assertEqual([portable for name, portable in self.portable() if "GpuAttention" in name], ["1", "0"])
        self.assertEqual([portable for name, portable in self.portable() if name == "GpuModel.D"], ["0"])

    def test_where_hoppers_attention_hangs_or_crashes_later_parts_take_the_portable_one(self):
        for what, word in (("hang", "HUNG"), ("crash", "CRASHED"), ("told", "HANGS"), ("break", "failed")):
            with self.subTest(what):
                for name in ("portable.txt", "benches.txt"):
                    (self.bundle / name).unlink(missing_ok=True)
                code, text = self.check({"tests": GOOD | {"HopperAttention.Bad": what}}, "--stall", 2)
                self.assertEqual(code, 1, text)
                self.assertIn(f"HopperAttention.Bad {word}", text)
                self.assertEqual([portable for name, portable in self.portable() if "GpuAttention" in name], ["1", "1"])
                self.assertEqual([portable for name, portable in self.portable() if name == "GpuModel.D"], ["1"])
                self.assertEqual(self.parts()["models and runs"]["result"], "passed")
                self.assertEqual(self.parts()["machine, attention"]["result"], "passed")
                self.assertIn("--gtest_filter=HopperAttention.Bad", text[text.index("What to run next"):])
                self.assertEqual(self.benches(), {"1"})

    def test_a_wrong_result_of_hoppers_attention_keeps_it_for_later_parts(self):
        code, text = self.check({"tests": GOOD | {"HopperAttention.Differs": "fail"}})
        self.assertEqual(code, 1, text)
        self.assertEqual(self.report()["troubles"], ["Hopper's attention: HopperAttention.Differs failed"])
        self.assertEqual(self.parts()["Hopper's attention"]["result"], "failed")
        self.assertEqual([portable for name, portable in self.portable() if "GpuAttention" in name], ["1", "0"])
        self.assertEqual([portable for name, portable in self.portable() if name == "GpuModel.D"], ["0"])
        self.assertEqual(self.benches(), {"0"})

    def test_a_test_that_only_takes_too_long_does_not_either(self):
        slow = {f"HopperAttention.T{i}": "slow" for i in range(9)}
        text = self.check({"tests": GOOD | slow}, "--seconds", 6)[1]
        self.assertIn("not done in time", self.parts()["Hopper's attention"]["detail"])
        self.assertNotIn("From here on, all parts use the portable attention", text)

    def test_what_to_profile_next_is_text_next_to_the_other_files(self):
        text = self.check({"tests": GOOD})[1]
        lines = [line for line in text[text.index("What to run next"):].splitlines() if line.startswith("ncu ")]
        self.assertEqual(len(lines), 3)
        for line, name in zip(lines, ("forward", "backward", "backward-deterministic")):
            self.assertIn("-c 1 ", line)  # only one launch: all of them would take minutes
            self.assertNotIn(" -o ", line)
            self.assertTrue(line.endswith(f'--only attention --quick >"${{OUT:-.}}/ncu-{name}.txt"'), line)

    def test_a_kernel_with_bounded_waits_says_where_it_hangs(self):
        code, text = self.check({"tests": GOOD | {"HopperAttention.Told": "told"}})
        self.assertEqual(code, 1, text)
        self.assertEqual(self.report()["troubles"], ["Hopper's attention: HopperAttention.Told HANGS: attention hangs: in "
                                                     "block 3, warp 1 waits"])
        programs = (self.bundle / "programs.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual({line.split()[1].split("-")[0] for line in programs if line.startswith("gpu_tests_bounded")},
                         {"*HopperAttention*.*"})
        self.assertIn("run gpu_tests_bounded --gtest_filter=HopperAttention.Told", text[text.index("What to run next"):])

    def test_the_short_form_has_the_kernels_and_says_what_to_run_next(self):
        code, text = self.check({"tests": GOOD}, "--short")
        self.assertEqual(code, 0, text)
        self.assertEqual(list(self.parts())[-1], "machine, attention")
        self.assertTrue(text.rstrip().endswith("bundle/gpu-check"), text)

    def test_every_part_is_bounded(self):
        slow = {f"GpuNormTest.T{i}": "slow" for i in range(100)}
        code, text = self.check({"tests": GOOD | slow, "bench": {"attention": "hang"}}, "--seconds", 10)
        self.assertEqual(code, 1, text)
        self.assertLess(self.seconds, 25)
        self.assertIn("not done in time", self.parts()["other kernels"]["detail"])
        self.assertTrue(any("was running when the part's time was up" in trouble for trouble in self.report()["troubles"]))
        self.assertEqual({self.parts()[part]["detail"] for part in ("models and runs", "scaling")}, {"no time left"})

    def test_a_bench_that_hangs_loses_no_figure(self):
        process = self.start({"tests": GOOD, "bench": {"attention": "hang"}}, "--seconds", 60)
        self.wait_for(process, lambda: (self.out / "bench.json").exists())
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=30)[0]
        self.assertEqual(process.returncode, 1)
        report = self.report()
        self.assertEqual(report["state"], "stopped by a signal")
        self.assertEqual(self.parts()["machine, attention"]["result"], "failed")
        self.assertEqual(self.parts()["other kernels"]["result"], "passed")
        self.assertIn("targets: of machine", text)
        self.assertEqual(self.processes(), [], "its command still runs")

    def test_a_kill_leaves_what_was_found(self):
        process = self.start({"tests": GOOD | {"GpuRun.Hangs": "hang"}})
        self.wait_for(process, lambda: (self.out / "gpu-check.json").exists() and
                      self.report()["state"] == "running: models and runs")
        os.killpg(process.pid, signal.SIGKILL)
        for process_id in self.processes():
            os.kill(process_id, signal.SIGKILL)  # a separate group, which nobody ended
        process.communicate(timeout=10)
        self.assertEqual(self.parts()["attention as called"]["result"], "passed")
        self.assertEqual(len(json.loads((self.out / "bench.json").read_text())["rows"]), 2)

    def test_missing_libraries_and_a_sanitizer_that_finds_something(self):
        tools = self.folder / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        tool.write_text('#!/bin/sh\n[ "$2" = racecheck ] && { echo "========= Race reported"; exit 9; }\n'
                        'echo "[       OK ] one (1 ms)"\n', encoding="utf-8")
        tool.chmod(0o755)
        code, text = self.check({"tests": GOOD, "libraries": 7}, path=tools)
        self.assertEqual(code, 1, text)
        parts = self.parts()
        self.assertEqual(parts["libraries"]["result"], "failed")
        self.assertEqual(parts["memcheck"]["detail"], "clean in 8 of 1 tests")
        self.assertEqual(parts["racecheck"]["result"], "advice")
        self.assertFalse(any("racecheck" in trouble for trouble in self.report()["troubles"]))


if __name__ == "__main__":
    unittest.main()
