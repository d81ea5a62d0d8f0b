"""bench/compare judges its input: verdicts, exit codes, formulas, and what happens when a baseline fails.

Run by CTest with RINGTRAIN_BIN, the folder of the programs under test.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from comparison import formulas, groups, machine, plan, setup, table, training  # noqa: E402  (the path above comes first)
from comparison.groups.context import Figures, measure_pairs  # noqa: E402
from comparison.table import Row  # noqa: E402
from comparison.workers import Worker, WorkerError  # noqa: E402


class Verdicts(unittest.TestCase):
    def verdict(self, pairs, **row):
        return Row("x", 1.2, 1.5, pairs=pairs, **row).verdict

    def test_the_median_is_judged(self):
        self.assertEqual(self.verdict([0.1, 1.3, 9.0]), "reached")
        self.assertEqual(self.verdict([1.1, 1.1, 9.0]), "MISSED")
        self.assertEqual(self.verdict([1.6, 1.5, 0.0]), "aim")

    def test_less_is_better_where_the_row_says_so(self):
        row = {"must": 1.15, "aim": 1.05, "at_most": True}
        self.assertEqual(Row("x", pairs=[1.2], **row).verdict, "MISSED")
        self.assertEqual(Row("x", pairs=[1.1], **row).verdict, "reached")
        self.assertEqual(Row("x", pairs=[0.9], **row).verdict, "aim")

    def test_the_worst_is_judged_where_the_row_says_so(self):
        self.assertEqual(self.verdict([1.1, 1.6, 1.6], by_worst=True), "MISSED")
        self.assertEqual(Row("x", 1, 1, at_most=True, by_worst=True, pairs=[1, 1, 1.01]).verdict, "MISSED")

    def test_a_verdict_agrees_with_the_printed_number(self):
        self.assertEqual(self.verdict([1.1996]), "reached")
        self.assertEqual(self.verdict([1.1994]), "MISSED")

    def test_what_was_not_measured_never_passes(self):
        self.assertEqual(self.verdict([]), "not measured")
        self.assertEqual(Row("x", why="no baseline").verdict, "not measured")

    def test_exit_codes(self):
        good, bad, absent = Row("x", 1, pairs=[2]), Row("x", 1, pairs=[0.5]), Row("x", 1)
        printed_only = Row("x", pairs=[0.1])
        self.assertEqual(table.exit_code([good, printed_only]), 0)
        self.assertEqual(table.exit_code([good, bad, absent]), 1)
        self.assertEqual(table.exit_code([good, absent]), 3)

    def test_the_table_shows_every_row(self):
        text = table.text([Row("fast", 1.2, 1.5, pairs=[1.3, 1.1, 1.4]), Row("absent", 1.2, why="no baseline")])
        self.assertRegex(text, r"fast +\| 1\.2 +\| 1\.5 +\| 1\.300 +\| 1\.100–1\.400 of 3 +\| reached")
        self.assertRegex(text, r"absent +\| 1\.2 +\| - +\| - +\| no baseline +\| not measured")


class Workers(unittest.TestCase):
    def worker(self, program):
        worker = Worker([sys.executable, "-c", program], 1, 1)
        self.addCleanup(worker.close)
        return worker

    def test_answers_and_errors(self):
        worker = self.worker("import sys, json\nfor line in sys.stdin:\n  q = json.loads(line)\n"
                             "  print(json.dumps({'error': 'bad'} if q['n'] < 0 else {'n': q['n'] + 1}), flush=True)")
        self.assertEqual(worker.ask(n=1), {"n": 2})
        with self.assertRaisesRegex(WorkerError, "bad"):
            worker.ask(n=-1)
        self.assertEqual(worker.ask(n=5), {"n": 6})

    def test_one_that_dies_says_its_last_words(self):
        worker = self.worker("import sys; sys.stdin.readline(); sys.exit('out of luck')")
        with self.assertRaisesRegex(WorkerError, "out of luck"):
            worker.ask(n=1)

    def test_one_that_hangs_is_given_up(self):
        with self.assertRaisesRegex(WorkerError, "no answer"):
            self.worker("import time; time.sleep(60)").ask(n=1, timeout=0.2)

    def test_a_row_whose_peer_fails_half_way_has_no_pairs(self):
        row, answers = Row("x", 1.0), iter([2.0, 2.0])

        def pair():
            try:
                return [next(answers)]
            except StopIteration:
                raise WorkerError("it died") from None

        measure_pairs([row], 3, pair, Figures())
        self.assertEqual((row.verdict, row.why), ("not measured", "it died"))


class Pairs(unittest.TestCase):
    def measured(self, busy, count):
        """Return a row and a figure of pairs 1, 2, ..., while others use this many cores during each."""
        row, figures, numbers, load = Row("x"), Figures(), iter(range(1, 100)), iter(busy)

        def pair():
            number = next(numbers)
            figures.add("y", "s", number)
            return [number]

        with unittest.mock.patch.object(machine.Interference, "cores", lambda self: (next(load), 0.0)):
            measure_pairs([row], count, pair, figures)
        return row, figures.all()[0].values

    def test_a_disturbed_pair_is_measured_again(self):
        row, values = self.measured([0, 1.0, 1.0, 0, 0.05], count=3)
        self.assertEqual((row.pairs, values, row.disturbed), ([1, 4, 5], [1, 4, 5], 0))

    def test_but_not_for_ever(self):
        row, values = self.measured([1.0] * 9, count=2)
        self.assertEqual((row.pairs, values, row.disturbed), ([3, 4], [3, 4], 2))
        self.assertIn("of 2, 2 disturbed", table.text([row]))


class Neighbors(unittest.TestCase):
    WORK = "import time\nwhile time.process_time() < 0.5: pass"  # half a second of a core's time

    def test_the_time_of_children_is_ours(self):
        before = machine.own_ticks()
        subprocess.run([sys.executable, "-c", self.WORK], check=True)
        self.assertGreaterEqual(machine.own_ticks() - before, 0.4 * os.sysconf("SC_CLK_TCK"))

    def test_the_time_of_others_is_not(self):
        """A process whose parent has ended is no longer anyone's child."""
        with tempfile.TemporaryDirectory() as folder:
            done = pathlib.Path(folder) / "done"
            script = f"{self.WORK}\nopen({str(done)!r}, 'w').close()"
            before, interference = machine.own_ticks(), machine.Interference()
            subprocess.run([sys.executable, "-c", "import subprocess, sys\n"
                            f"subprocess.Popen([sys.executable, '-c', {script!r}])"], check=True)
            while not done.exists():
                time.sleep(0.01)
            self.assertLess(machine.own_ticks() - before, 0.4 * os.sysconf("SC_CLK_TCK"))
            self.assertGreater(interference.cores()[0], 0)


class Plans(unittest.TestCase):
    """Compares the program's own plan with formulas reimplemented here and in bench/comparison/formulas.py."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        setup.WORK = pathlib.Path(folder.name)

    def plan(self, config, **settings):
        return training.plan(config, {key.replace("__", "."): value for key, value in settings.items()})

    def test_model_flops_of_gpt2(self):
        report = self.plan("gpt2_124m.yaml")
        width, layers, vocabulary, length = 768, 12, 50257, 1024
        block = 12 * width**2 + 13 * width  # products with their biases, two norms with theirs
        parameters = vocabulary * width + layers * block + 2 * width
        self.assertEqual(training.flops_per_token(report), 6 * parameters + 6 * layers * (length + 1) * width)

    def test_model_flops_of_llama(self):
        report = self.plan("llama_124m.yaml", training__seq_len=512)
        width, inner, layers, vocabulary, length = 768, 2432, 12, 50257, 512
        block = 2 * width**2 + 2 * width * (width // 3) + 3 * width * inner + 2 * width
        parameters = vocabulary * width + layers * block + width
        self.assertEqual(training.flops_per_token(report), 6 * parameters + 6 * layers * (length + 1) * width)

    def test_the_tensors_of_a_rank_are_its_tags(self):
        ranks = plan.ranks_of(self.plan("ring.yaml", training__seq_len=4097, mesh__sequence=3))
        self.assertEqual(sorted(ranks), [0, 1, 2])
        for rank in ranks.values():
            self.assertEqual(sum(rank[tag] for tag in plan.TAGS[:-1]), rank["total"])
            self.assertEqual(sum(rank["tensors"].values()), rank["total"])

    def test_ring_and_workspace_are_what_is_stated(self):
        for config, settings in (("ring.yaml", {"mesh__sequence": 4}),
                                 ("ring.yaml", {"mesh__sequence": 3, "training__seq_len": 3000,
                                                "data__packing": "documents"}),
                                 ("ring.yaml", {"mesh__sequence": 2, "training__recompute": "none",
                                                "training__loss_chunk": 100000}),
                                 ("ring.yaml", {"mesh__sequence": 2, "training__feedforward_chunk": 0}),
                                 ("ring.yaml", {"mesh__sequence": 2, "model__architecture": "qwen2"}),
                                 ("ring.yaml", {"mesh__sequence": 2, "model__architecture": "qwen3"}),
                                 ("gpt2_124m.yaml", {"mesh__sequence": 2, "training__recompute": "full",
                                                     "training__feedforward_chunk": 256})):
            report = self.plan(config, **settings)
            model, ranks = training.model_of(report), plan.ranks_of(report)
            tokens = -(-training.value_of(report, "training.seq_len") // len(ranks)) * training.value_of(
                report, "training.micro_batch_size")
            rank = ranks[0]
            with self.subTest(config=config, **settings):
                self.assertEqual(rank["ring"], formulas.ring(len(ranks), tokens, model["num_key_value_heads"],
                                                             model["head_dim"], "packing: documents" in report))
                self.assertEqual(rank["workspace"] - rank["tensors"]["attention workspace"], formulas.workspace(
                    model, tokens, len(ranks), training.value_of(report, "training.feedforward_chunk"),
                    training.value_of(report, "training.loss_chunk"), "recompute: none" in report))

    def test_a_record_says_how_many_ranks_and_what_they_hold(self):
        """Two things are called ring: the number of ranks, and the bytes of its buffers."""
        ranks = plan.ranks_of(self.plan("ring.yaml", training__seq_len=4096, mesh__sequence=4))
        record = plan.record(ranks, 4096)
        self.assertEqual((record["tokens"], record["ranks"]), (4096, 4))
        self.assertEqual(record["bytes"], {tag: ranks[0][tag] for tag in plan.TAGS})
        self.assertEqual(record["all_ranks_bytes"], sum(rank["total"] for rank in ranks.values()))
        cells = [cell.strip() for cell in plan.table_of([record]).splitlines()[-1].strip("|").split("|")]
        ring = 2 + plan.TAGS.index("ring")
        self.assertEqual((cells[:2], cells[ring]), (["4K", "4"], f"{ranks[0]['ring'] / 2**20:.1f}"))

    def test_steps_are_those_asked_for_and_their_memory_is_counted(self):
        run = training.run("ring.yaml", {"training.seq_len": 64, "mesh.sequence": 2, "mesh.threads_per_rank": 1}, 1,
                           count=2)
        self.assertEqual([line["step"] for line in run.lines], [1, 2])
        self.assertGreater(run.resident_bytes, 2 * run.lines[0]["peak_bytes"][0]["weights"])
        self.assertEqual(list(setup.WORK.glob("run-*")), [])

    def test_a_run_that_fails_says_why(self):
        with self.assertRaisesRegex(WorkerError, "seq_len"):
            training.run("ring.yaml", {"training.seq_len": 2, "mesh.sequence": 3}, 1, count=1)


class Backends(unittest.TestCase):
    """PyTorch's float32 products use whichever of its libraries is faster."""

    def choose(self, seconds, mode="eager", dtype="float32"):
        """Return the chosen backend and those closed. seconds: by backend; None: it cannot run."""
        closed = []

        def baseline(_script, _model, _mode, _dtype, backend):
            worker = unittest.mock.Mock(backend=backend)
            worker.close.side_effect = lambda: closed.append(backend)
            worker.ask.return_value = {"seconds": seconds[backend]}
            if seconds[backend] is None:
                worker.ask.side_effect = WorkerError("no such call")
            return worker

        context = unittest.mock.Mock(baseline=baseline)
        chosen = groups.steps.fastest_baseline(context, "gpt2", mode, dtype, {"length": 8}, groups.steps.Figures())
        return chosen.backend, closed

    def test_the_faster_one_is_taken_and_the_other_closed(self):
        self.assertEqual(self.choose({"blas": 2.0, "onednn": 1.0}), ("onednn", ["blas"]))
        self.assertEqual(self.choose({"blas": 1.0, "onednn": 2.0}), ("blas", ["onednn"]))

    def test_a_version_without_the_call_keeps_its_blas(self):
        self.assertEqual(self.choose({"blas": 2.0, "onednn": None}), ("blas", ["onednn"]))
        with self.assertRaises(WorkerError):
            self.choose({"blas": None, "onednn": 1.0})

    def test_other_modes_have_no_choice(self):
        self.assertEqual(self.choose({"blas": 2.0}, dtype="bfloat16"), ("blas", []))
        self.assertEqual(self.choose({"blas": 2.0}, mode="compiled"), ("blas", []))


class TokenFile(unittest.TestCase):
    def test_it_is_made_again_only_by_a_newer_prepare(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(setup, "WORK", pathlib.Path(folder)), \
                unittest.mock.patch.object(setup, "BIN", pathlib.Path(folder)), \
                unittest.mock.patch.object(setup, "run") as made:
            made.side_effect = lambda command: pathlib.Path(command[4]).write_text("tokens", encoding="utf-8")
            prepare = pathlib.Path(folder) / "prepare"
            prepare.write_text("", encoding="utf-8")
            path = setup.token_file()
            setup.token_file()
            self.assertEqual(made.call_count, 1)
            later = path.stat().st_mtime + 10
            os.utime(prepare, (later, later))
            path.with_name("text.h5.manifest.json").write_text("of the old one", encoding="utf-8")
            made.side_effect = lambda command: self.assertEqual(list(pathlib.Path(folder).glob("text.h5*")), [])
            setup.token_file()
            self.assertEqual(made.call_count, 2)


class Program(unittest.TestCase):
    def test_the_quick_form_leaves_out_what_has_no_target(self):
        self.assertEqual(groups.names(quick=False), list(groups.GROUPS))
        left_out = set(groups.GROUPS) - set(groups.names(quick=True))
        self.assertEqual(left_out, {"llama"})
        self.assertEqual(groups.steps.MODELS["llama"][2:], ((None, None), (None, None)))

    def test_a_peer_that_cannot_run_is_not_measured(self):
        result = subprocess.run([ROOT / "bench" / "compare", "--only", "peer-attention", "--no-build", "--pairs", "1"],
                                capture_output=True, text=True, check=False,
                                env=os.environ | {"RINGTRAIN_PEER_PYTHON": "/bin/false"})
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("8 rows", result.stdout)
        self.assertIn("0 missed, 8 not measured", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
