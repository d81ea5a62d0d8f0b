#!/usr/bin/env python3
"""gpu_bench, from end to end, on the emulator: every group runs, every row that the targets need exists, its output is
complete, and a report with known figures is judged correctly. The program is the only argument."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False)


class Measures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name) / "bench.json"
        cls.done = run("--json", cls.path)
        cls.report = json.loads(cls.path.read_text(encoding="utf-8"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def rows(self, group, name):
        return [row for row in self.report["rows"] if (row["group"], row["name"]) == (group, name)]

    def one(self, group, name, **parameters):
        found = [row for row in self.rows(group, name) if parameters.items() <= row["parameters"].items()]
        self.assertEqual(len(found), 1, f"{group}: {name} {parameters}")
        return found[0]

    def test_every_group_runs_to_its_end(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertEqual(self.report["failures"], [])
        self.assertGreaterEqual(self.report["checks"], 3 + 4 + 2 + 5)  # products, attention, ring, scaling
        self.assertTrue(self.report["emulated"])
        self.assertIn("nothing measured here counts", self.done.stdout)

    def test_every_figure_is_a_number_with_a_unit_and_is_printed(self):
        for row in self.report["rows"]:
            self.assertTrue(math.isfinite(row["value"]), row)
            self.assertTrue(row["unit"] or row["name"] == "plan fits", row)
            self.assertIn(row["name"], self.done.stdout)
            if "exposed" not in row["name"] and "host" not in row["name"] and row["name"] not in ("step", "tokens", "MFU"):
                self.assertGreater(row["value"], 0, row)

    def test_machine(self):
        for fact in ("GPU", "driver serves CUDA", "runtime", "multiprocessors", "memory bytes"):
            self.assertIn(fact, self.report["machine"])
        self.one("machine", "device-to-device copy")
        for product in ("forward", "input gradient", "weight gradient"):
            self.one("machine", f"matrix product {product}", dtype="bfloat16")

    def test_attention(self):
        for name in ("forward", "backward", "backward, deterministic", "deterministic over default"):
            rows = self.rows("attention", name)
            self.assertEqual({row["parameters"]["causal"] for row in rows}, {True, False})
            self.assertEqual({row["parameters"]["D"] for row in rows}, {64, 128})

    def test_ring(self):
        for name in ("pass", "step"):
            self.one("ring", name, ranks=1)
            two = self.one("ring", name, ranks=2)
            ratio = self.one("ring", f"{name} over one rank", ranks=2)
            self.assertAlmostEqual(ratio["value"], two["value"] / self.one("ring", name, ranks=1)["value"], places=6)
        for direction in ("forward", "backward"):
            self.one("ring", f"exposed communication a hop, {direction}", ranks=2)

    def test_scaling_times_extrapolates_and_says_which(self):
        contexts = [row["parameters"]["context"] for row in self.rows("scaling", "step")]
        notes = [self.one("scaling", "step", context=context)["note"] for context in contexts]
        self.assertEqual(len(contexts), 4)
        for note, how in zip(notes, ("all 3 layers timed", "steps of 1 and 2 layers", "a step of 1 layer", "a T + b T^2")):
            self.assertIn(how, note)
        for context in contexts:
            step, tokens = (self.one("scaling", name, context=context)["value"] for name in ("step", "tokens"))
            self.assertAlmostEqual(tokens, context / step, delta=1e-6 * abs(tokens))
            self.assertIn("989 TFLOP/s dense", self.one("scaling", "MFU", context=context)["note"])
            rung = self.report["attached"]["scaling"][str(context)]
            self.assertTrue(rung["fits"])
            planned = rung["planned"]
            self.assertEqual(planned["total"], sum(planned[tag] for tag in planned if tag != "total"))
            self.assertIn("layer * input", rung["plan"])

    def test_a_step_of_all_layers_holds_what_its_plan_says(self):
        rung = self.report["attached"]["scaling"]["32"]
        measured = self.report["attached"]["scaling measured"]["32 tokens, 3 layers"]["peak"]
        for tag in ("weights", "gradients", "optimizer", "activations"):
            self.assertEqual(measured[tag], rung["planned"][tag])

    def test_other_groups_of_a_report_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bench.json"
            other = {"group": "scaling", "name": "MFU", "value": 41, "unit": "%", "parameters": {"context": 8192}}
            stale = {"group": "machine", "name": "old", "value": 1, "unit": "?", "parameters": {}}
            earlier = json.dumps({"rows": [other, stale], "failures": ["scaling: x", "machine: y"], "checks": 2,
                                 "attached": {"scaling measured": {"a": 1}, "machine": {"b": 2}}})
            path.write_text('{\n  "written_by": "ringtrain gpu_bench",' + earlier[1:], encoding="utf-8")
            done = run("--only", "machine", "--append", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual([row for row in report["rows"] if row["group"] != "machine"], [other])
        self.assertEqual({row["name"] for row in report["rows"]} - {"MFU"},
                         {row["name"] for row in self.report["rows"] if row["group"] == "machine"})
        self.assertEqual(report["failures"], ["scaling: x"])
        self.assertEqual(report["attached"]["scaling measured"], {"a": 1})
        self.assertGreater(report["checks"], 2)

    def test_its_own_report_is_judged_and_not_believed(self):
        judged = run("--targets", self.path)
        self.assertIn("nothing measured there counts", judged.stdout)
        self.assertIn("not measured", judged.stdout)  # tiny sizes differ from those of the targets
        self.assertEqual(judged.returncode, 3)


class Judges(unittest.TestCase):
    SHAPE = {"causal": True, "D": 128, "S": 8192, "H": 16, "G": 16}
    of_groups = 0.96  # deterministic over default if key/value heads are shared

    def judge(self, changes=(), baseline=None):
        rows = [("attention", "forward", self.SHAPE, 500), ("attention", "backward", self.SHAPE, 600),
                ("attention", "deterministic over default", self.SHAPE, 0.9),
                ("attention", "deterministic over default", self.SHAPE | {"G": 8}, self.of_groups),
                *(("scaling", "MFU", {"context": context}, 40) for context in (8192, 65536, 262144)),
                *(("scaling", "plan fits", {"context": 1 << power}, float(power < 21)) for power in (13, 20, 21)),
                *(("ring", "pass over one rank", {"ranks": ranks, "S": 32768}, 1.01) for ranks in (2, 4, 8))]
        rows = [{"group": group, "name": name, "parameters": parameters, "value": dict(changes).get(name, value),
                 "unit": "?"} for group, name, parameters, value in rows if dict(changes).get(name, 1) is not None]
        with tempfile.TemporaryDirectory() as folder:
            path, baseline_path, out = (pathlib.Path(folder) / name for name in ("bench.json", "peer.json", "out.json"))
            path.write_text(json.dumps({"rows": rows}), encoding="utf-8")
            arguments = ["--targets", path, "--json", out]
            if baseline:
                baseline_path.write_text(json.dumps({"rows": baseline}), encoding="utf-8")
                arguments += ["--peer", baseline_path]
            done = run(*arguments)
            verdicts = json.loads(out.read_text(encoding="utf-8"))["targets"]
        return done.returncode, {row["what"]: row for row in verdicts}

    def test_what_is_reached(self):
        code, rows = self.judge()
        self.assertEqual(code, 0)
        verdicts = {what: row["verdict"] for what, row in rows.items()}
        self.assertEqual(verdicts["attention forward, head 128, causal, 8K, TFLOP/s"], "reached")
        self.assertEqual(verdicts["attention backward, head 128, causal, 8K, TFLOP/s"], "aim reached")
        self.assertEqual(rows["longest context of the 1B model that fits the card, tokens"]["measured"], 1 << 20)

    def test_what_is_missed_or_absent_is_no_success(self):
        for changes in ({"forward": 449}, {"forward": None}, {"MFU": 34.9}, {"pass over one rank": 1.2},
                        {"plan fits": 0.0}, {"deterministic over default": 0.84}):
            self.assertEqual(self.judge(changes)[0], 3, changes)
        self.assertEqual(self.judge({"pass over one rank": 1.2})[1]["ring of 2 on one card over one rank, pass, "
                                                                    "same tokens"]["verdict"], "MISSED")

    def test_grouped_heads_are_judged_by_themselves(self):
        what = "deterministic backward over the default one, G {}"
        rows = self.judge()[1]
        self.assertEqual([rows[what.format(G)]["verdict"] for G in (16, 8)], ["reached", "aim reached"])
        self.of_groups = 0.84
        code, rows = self.judge()
        self.assertEqual(code, 3)
        self.assertEqual([rows[what.format(G)]["verdict"] for G in (16, 8)], ["reached", "MISSED"])

    def test_the_faster_peer_counts(self):
        baseline = [{"group": "sdpa", "name": f"{backend} forward", "parameters": self.SHAPE, "value": value}
                for backend, value in (("cudnn", 1000), ("flash", 400))]
        rows = self.judge(baseline=baseline)[1]
        self.assertAlmostEqual(rows["attention forward, head 128, causal, S 8192: over PyTorch's faster SDPA"]["measured"],
                               0.5)

    def test_what_is_no_report_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{")
            file.flush()
            done = run("--targets", file.name)
        self.assertEqual(done.returncode, 3)
        self.assertIn("is not a report", done.stderr)


class Refuses(unittest.TestCase):
    def test_an_unknown_group(self):
        done = run("--only", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("everything", done.stderr)


if __name__ == "__main__":
    unittest.main()
