#!/usr/bin/env python3
"""Events that extras/python/ringtrain_tensorboard.py makes, read by TensorBoard itself."""
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
import named_python  # noqa: E402

named_python.use()
try:
    from tensorboard.backend.event_processing.directory_watcher import DirectoryDeletedError
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    named_python.skip(missing)


def step_line(step, loss=None, **more):
    return json.dumps({"kind": "train", "step": step, "time": f"2026-11-22T13:04:{step % 60:02}.250Z",
                       "tokens": 64 * step, "loss": loss or 5 / step, "grad_norm": None, "samples": [1], **more}) + "\n"


class Events(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = pathlib.Path(self.folder.name)
        self.metrics = self.run_folder / "metrics.jsonl"

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, "-m", "ringtrain_tensorboard", self.folder.name, *arguments],
                                cwd=ROOT / "extras/python", stderr=subprocess.PIPE, text=True)

    def scalars(self):
        events = EventAccumulator(str(self.run_folder / "tensorboard"), size_guidance={"scalars": 0})  # 0: keeps all
        events.Reload()
        return {tag: [(event.step, event.value, event.wall_time) for event in events.Scalars(tag)]
                for tag in events.Tags()["scalars"]}

    def losses(self):
        try:
            return [(step, value) for step, value, _ in self.scalars().get("train/loss", [])]
        except DirectoryDeletedError:  # not there yet
            return []

    def wait_for_losses(self, expected):
        end = time.monotonic() + 60
        while self.losses() != expected and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(self.losses(), expected)

    def test_hold_what_the_metrics_hold(self):
        results = [{"context_length": 64, "nll": 1.5, "perplexity": 4.5, "bits_per_byte": None, "ci95": [1, 2]}]
        evaluation = {"kind": "evaluation", "step": 2, "time": "2026-11-22T13:04:02.500Z", "documents": 3}
        strange = ["no json", "[1]", "3", '{"kind":"train","step":1e300}', '{"kind":"train","step":18446744073709551616}',
                   '{"kind":["train"],"step":2}', '{"kind":"evaluation","step":3,"results":3}',
                   '{"kind":"evaluation","step":3,"results":[3]}', "[" * 100000, step_line(3, time=5).strip(),
                   step_line(3, loss=10 ** 400).strip()]
        self.metrics.write_text(step_line(1, empty=True) + "\n".join(strange) + "\n" + step_line(2)
                                + json.dumps(evaluation | {"results": results}) + "\n" + step_line(3)[:-1])
        process = self.start()
        self.assertEqual((process.wait(), process.stderr.read()), (0, ""))
        self.assertEqual(self.scalars(), {
            "train/tokens": [(1, 64, 1795352641.25), (2, 128, 1795352642.25)],  # date -d 2026-11-22T13:04:01Z +%s
            "train/loss": [(1, 5, 1795352641.25), (2, 2.5, 1795352642.25)],
            "evaluation/nll/64": [(2, 1.5, 1795352642.5)], "evaluation/perplexity/64": [(2, 4.5, 1795352642.5)]})
        self.assertEqual(self.start().wait(), 0)  # again: each step is there once
        self.assertEqual(self.losses(), [(1, 5), (2, 2.5)])

    def test_follow_a_run_that_goes_back(self):
        lines = [step_line(step) for step in range(1, 5)]
        self.metrics.write_text("".join(lines[:2]) + lines[2][:20])
        process = self.start("--follow")
        self.addCleanup(process.kill)
        self.wait_for_losses([(1, 5), (2, 2.5)])
        with self.metrics.open("a") as file:
            file.write(lines[2][20:] + lines[3])
        self.wait_for_losses([(1, 5), (2, 2.5), (3, *struct.unpack("f", struct.pack("f", 5 / 3))), (4, 1.25)])
        # A run that resumes after step 2 makes steps 3 to 5 again. Step 3 gets a shorter line, step 4 one of its length.
        again = [step_line(3, loss=8), step_line(4, loss=4.25), step_line(5, loss=2)]
        self.metrics.write_text("".join(lines[:2] + again))
        self.wait_for_losses([(1, 5), (2, 2.5), (3, 8), (4, 4.25), (5, 2)])
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    def test_a_run_without_metrics_is_refused(self):
        process = self.start()
        self.assertEqual(process.wait(), 2)
        self.assertIn(f"{self.metrics}: No such file or directory", process.stderr.read())


if __name__ == "__main__":
    unittest.main()
