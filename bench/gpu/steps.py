#!/usr/bin/env python3
"""Training steps of a bundle's `train` at the sizes that others publish, next to PyTorch's, on one GPU.

The runs come in order of value, and a run that has no time left is skipped. Ours and PyTorch's steps alternate. Each
line shows the median step, tokens/s, MFU, and the GPU's mean clock and power during the steps; lines of `train` also
show the seconds from the start of the program to the end of its first step. Exit: 0 if all runs ended, 1 if one failed,
3 if one was skipped.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEAK = 989e12  # of an H100 or H200: dense bfloat16 FLOP/s
QWEN_15B = {"model.architecture": "qwen2", "model.vocab_size": 151936, "model.hidden_size": 1536,
            "model.num_hidden_layers": 28, "model.num_attention_heads": 12, "model.num_key_value_heads": 2,
            "model.intermediate_size": 8960, "model.rope_theta": 1000000}
QWEN_8B = {"model.architecture": "qwen3", "model.vocab_size": 151936, "model.hidden_size": 4096,
           "model.num_hidden_layers": 36, "model.num_attention_heads": 32, "model.intermediate_size": 12288,
           "model.rope_theta": 1000000, "model.tie_word_embeddings": "false", "optimizer.gradients": "bfloat16",
           "optimizer.moments": "bfloat16", "training.offload": "optimizer", "optimizer.host_share": 0.75}
TINY = {"model.vocab_size": 512, "model.hidden_size": 64, "model.num_hidden_layers": 2, "model.num_attention_heads": 2,
        "model.num_key_value_heads": 1, "model.head_dim": 32, "model.intermediate_size": 96, "training.seq_len": 64,
        "training.micro_batch_size": 1, "training.global_batch_size": 2, "training.dtype": "float32"}


def case(name, length, sequences, batch, steps, turns=1, baseline=None, model=None, note="", recompute="none"):
    """batch: sequences of a step; baseline: how many of PyTorch's layers are recomputed, None: PyTorch does not run."""
    settings = {"training.seq_len": length, "training.micro_batch_size": sequences, "training.global_batch_size": batch,
                "training.recompute": recompute} | (model or {})
    return {"name": name, "length": length, "sequences": sequences, "batch": batch, "steps": steps, "turns": turns,
            "baseline": baseline, "settings": settings, "note": note}


LONGEST = 150  # seconds of a run
# At 64K, PyTorch recomputes as many layers as an 80 GB GPU needs.
CASES = (case("1B, 8K x 1", 8192, 1, 1, 25, turns=2, baseline=0),
         case("1B, 64K x 1", 65536, 1, 1, 6, turns=2, baseline=8),
         case("Qwen3-8B, 8K x 16", 8192, 1, 16, 2, model=QWEN_8B),
         case("Qwen2.5-1.5B, 1K x 16 x 8", 1024, 16, 128, 7, model=QWEN_15B,
              note="llmq reports 58,000 tokens/s (H100)"),
         case("1B, 8K x 4", 8192, 4, 4, 10, baseline=0),
         case("Qwen3-8B, 8K x 16, float32 moments", 8192, 1, 16, 2,
              model=QWEN_8B | {"optimizer.moments": "float32", "optimizer.host_share": 0.84}),
         case("Qwen3-8B, 64K x 1", 65536, 1, 1, 1, recompute="full", model=QWEN_8B))


class Sampler:
    """Clock and power of the GPU, ten times a second."""

    def __init__(self, folder):
        self.path = folder / "samples"
        self.process = None
        try:
            with self.path.open("w", encoding="utf-8") as file:
                self.process = subprocess.Popen(
                    ["nvidia-smi", "-i", "0", "-lms", "100", "--query-gpu=timestamp,clocks.sm,power.draw",
                     "--format=csv,noheader,nounits"], stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            pass  # no nvidia-smi: no figures

    def between(self, begun, ended):
        """Return the mean clock in MHz and power in W between two times, in seconds of the epoch."""
        rows = []
        for line in self.path.read_text(encoding="utf-8").splitlines()[:-1]:
            try:
                moment, clock, power = line.split(", ")
                moment = datetime.datetime.strptime(moment, "%Y/%m/%d %H:%M:%S.%f").timestamp()
                rows += [(float(clock), float(power))] if begun <= moment <= ended else []
            except ValueError:  # a figure that this GPU does not report
                pass
        if not rows:
            return {}
        return {"mhz": statistics.mean(row[0] for row in rows), "watts": statistics.mean(row[1] for row in rows)}

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def seconds_of(moment):
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


class Skipped(RuntimeError):
    pass


def output_of(command, left):
    """Return the last line that a command prints. Raises RuntimeError if it fails or takes very long."""
    limit = min(left, LONGEST)
    try:
        ended = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        raise (Skipped if limit < LONGEST else RuntimeError)(f"not done after {limit:.0f} s") from error
    last = (ended.stdout.strip().splitlines() or [""])[-1]
    if ended.returncode != 0:
        raise (Skipped if ended.returncode == 77 else RuntimeError)(f"code {ended.returncode}: {last}")
    return last


def ours(bundle, run, left, folder, tiny):
    settings = {"data.train": bundle / "data" / "sources.h5", "checkpoint.interval": -1,
                "metrics.peak_flops": PEAK} | run["settings"] | (TINY if tiny else {})
    steps = run["steps"] + (3 if run["steps"] > 3 else 1)  # the first ones do not count
    begun = time.time()
    output_of([bundle / "run", "train", "--config", bundle / "configs" / "long_ctx_gpu.yaml", "--stop-after", steps,
               "--output", folder / "run",
               *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))], left)
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line.get("kind") == "train"]
    counted = lines[-run["steps"]:]
    return {"seconds": statistics.median_low(line["seconds"] for line in counted),
            "mfu": 100 * statistics.median_high(line["mfu"] for line in counted),
            "first_step_seconds": seconds_of(lines[0]["time"]) - begun, "loss": lines[-1]["loss"],
            "begun": seconds_of(counted[0]["time"]) - counted[0]["seconds"], "ended": seconds_of(lines[-1]["time"])}


def pytorch(run, left, tiny):
    return json.loads(output_of(
        [os.environ.get("RINGTRAIN_PYTHON", sys.executable), HERE / "step_baseline.py", "--steps", run["steps"],
         "--length", 64 if tiny else run["length"], "--sequences", run["sequences"], "--recompute", run["baseline"],
         *["--tiny"] * tiny], left))


def show(row):
    cells = [f"{row['name']:36} {row['who']:8} {row['seconds']:9.4f} s {row['tokens_per_second']:9,.0f} tokens/s"]
    cells += [f"{row['mfu']:.1f}% MFU"] if "mfu" in row else []
    cells += [f"{row['mhz']:.0f} MHz, {row['watts']:.0f} W"] if "mhz" in row else []
    cells += [f"first step after {row['first_step_seconds']:.1f} s"] if "first_step_seconds" in row else []
    cells += [row["note"]] if row["note"] else []
    print("; ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the runs whose name contains this")
    parser.add_argument("--against", type=pathlib.Path, metavar="BUNDLE", help="also run this bundle's train at 64K")
    parser.add_argument("--seconds", type=float, default=540, help="of all runs (default: 540)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all rows to FILE after each run")
    parser.add_argument("--tiny", action="store_true", help="miniatures, to try this script without a GPU")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    report = {"rows": [], "skipped": [], "troubles": []}
    with tempfile.TemporaryDirectory() as temporary:
        sampler = Sampler(pathlib.Path(temporary))
        for run, who in turns(arguments):
            left = end - time.monotonic()
            try:
                if left < 5:
                    raise Skipped("no time left")
                with tempfile.TemporaryDirectory(dir=temporary) as folder:
                    if who == "PyTorch":
                        row = pytorch(run, left, arguments.tiny)
                    else:
                        row = ours(arguments.against if who == "other" else HERE, run, left, pathlib.Path(folder),
                                   arguments.tiny)
            except (RuntimeError, OSError, ValueError) as error:
                text = f"{run['name']}, {who}: {error}"
                report["skipped" if isinstance(error, Skipped) else "troubles"].append(text)
                print(text, flush=True)
            else:
                mine = next((r for r in report["rows"] if (r["name"], r["who"]) == (run["name"], "ours")), row)
                if "mfu" in mine:  # PyTorch's step has the same FLOPs
                    row.setdefault("mfu", mine["mfu"] * mine["seconds"] / row["seconds"])
                row |= {"name": run["name"], "who": who, "note": run["note"] if who == "ours" else "",
                        "tokens_per_second": run["batch"] * run["length"] / row["seconds"]}
                report["rows"].append(row | sampler.between(row["begun"], row["ended"]))
                show(report["rows"][-1])
            if arguments.json:
                arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
        sampler.end()
    return 1 if report["troubles"] else 3 if report["skipped"] else 0


def turns(arguments):
    """Yield each run's case and who runs it, in order."""
    for run in CASES:
        others = ["PyTorch"] * (run["baseline"] is not None)
        others += ["other"] * (arguments.against is not None and run["name"] == "1B, 64K x 1")
        for who in ["ours", *others] * run["turns"]:
            if arguments.only in run["name"]:
                yield run, who


if __name__ == "__main__":
    sys.exit(main())
