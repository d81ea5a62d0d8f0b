#!/usr/bin/env python3
"""The program of docs/metrics.md that makes TensorBoard's events: TensorBoard itself reads the metrics' values."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/docs")]
import environment  # noqa: E402
import pages  # noqa: E402

environment.use()
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
except ImportError as missing:
    environment.skip(missing)


class Events(unittest.TestCase):
    def test_hold_the_numbers_of_the_metrics(self):
        lines = [{"kind": "train", "step": 1, "loss": 5, "grad_norm": None, "time": "2026-11-22T13:04:01.250Z"},
                 {"kind": "evaluation", "step": 1, "results": [{"context_length": 64, "nll": 1.5, "ci95": [1, 2]}]},
                 {"kind": "train", "step": 2, "loss": 2.5}]
        [program] = [block for block in pages.blocks(ROOT / "docs/metrics.md") if block.mark("file")]
        with tempfile.TemporaryDirectory() as run:
            pathlib.Path(run, "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            subprocess.run([sys.executable, "-c", program.text, run], check=True)
            events = EventAccumulator(f"{run}/tensorboard")
            events.Reload()
            found = {tag: [(one.step, float(tensor_util.make_ndarray(one.tensor_proto))) for one in events.Tensors(tag)]
                     for tag in events.Tags()["tensors"]}
        self.assertEqual(found["train/loss"], [(1, 5), (2, 2.5)])
        self.assertEqual(found["evaluation/64/nll"], [(1, 1.5)])
        self.assertFalse([tag for tag in found if tag.endswith(("grad_norm", "time", "ci95"))])


if __name__ == "__main__":
    unittest.main()
