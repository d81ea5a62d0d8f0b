"""Compares step times that `plan` predicts with those of `train`, on this machine.

Models, lengths, and layouts on rings of 1 to 4. A ring's ranks are processes, each in its own network namespace, all
behind one switch, and a token bucket limits each to 100 to 1,000 Mbit/s. `plan --measure` fits isolated kernels. --fit
then finds the kernels' cost within a run, and for the links, of which only the nominal rate is known, the share of it
that messages get, their latency, and their cost on a core: one number each for all runs, fitted to those that are not
held out. Every third run is held out.

usage: bench/planning/predict [--bin build/release/bin] [--folder DIR] [--seconds 500] [--steps 7]
       bench/planning/predict --fit [--folder DIR]        fits these numbers to what has been measured
       bench/planning/predict --table [--folder DIR]      the measurements, with current predictions
       bench/planning/predict --sharding [--rounds 3]     a step with and without sharded weights, at two rates

Measuring continues where it stopped: DIR keeps the machine's file and each run's step times, and no run begins after
--seconds. Needs root, ip, tc, and mpirun for rings of 2 and more. Run it on an otherwise idle machine.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "64x2": "hidden_size=64 num_hidden_layers=2 num_attention_heads=2 num_key_value_heads=1 intermediate_size=192",
    "128x3": "hidden_size=128 num_hidden_layers=3 num_attention_heads=4 num_key_value_heads=2 intermediate_size=384",
    "256x2": "hidden_size=256 num_hidden_layers=2 num_attention_heads=4 num_key_value_heads=4 intermediate_size=768",
    "512x4": "hidden_size=512 num_hidden_layers=4 num_attention_heads=8 num_key_value_heads=2 intermediate_size=1536",
}
# Ring, tokens, Mbit/s, layout, for every model to which rates are fitted.
FITTED = ["64x2", "128x3", "256x2"]
CASES = [(1, 1024, 0, "zigzag"), (1, 4096, 0, "zigzag"), (2, 2048, 1000, "zigzag"), (2, 4096, 250, "striped"),
         (2, 4096, 100, "zigzag"), (3, 3072, 500, "zigzag"), (4, 2048, 1000, "striped"), (4, 4096, 250, "zigzag"),
         (4, 8192, 1000, "zigzag"), (4, 4096, 500, "contiguous")]
# For --sharding: gathers and reductions that attention hides (8,192 tokens per rank, 1 Gbit/s), and two that it does
# not.
SHARDED = [("256x2", 2, 16384, 1000, "zigzag"), ("256x2", 2, 4096, 100, "zigzag"), ("512x4", 2, 2048, 100, "zigzag")]
# The fitted values: keys of a hardware file, links last. Ethernet, IP, and TCP leave 1,448 of the 1,514 bytes of a
# frame.
START = {"share": 1448 / 1514, "latency": 5e-4, "core_bandwidth": 5e8, "product_bandwidth": 5e9,
         "memory_bandwidth": 1.25e10, "pair_forward": 2e-10, "pair_backward": 6e-10}
SUBNET = "10.231.78"


def run(command, **options):
    result = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"predict: {' '.join(map(str, command))} ended with {result.returncode}:\n{result.stdout}")
    return result.stdout


@contextlib.contextmanager
def hosts(count, megabits):
    """Namespaces pPID-1, pPID-2, ... behind a bridge in a separate one. Yields their prefix."""
    prefix, spaces = f"p{os.getpid()}-", ["switch"] + [str(i + 1) for i in range(count)]
    try:
        for space in spaces:
            run(["ip", "netns", "add", prefix + space])
        switch = prefix + "switch"
        run(["ip", "-n", switch, "link", "add", "bridge", "type", "bridge"])
        run(["ip", "-n", switch, "link", "set", "bridge", "up"])
        for space in spaces[1:]:
            inside, port = prefix + space, f"port{space}"
            run(["ip", "link", "add", "wire", "netns", inside, "type", "veth", "peer", "name", port, "netns", switch])
            run(["ip", "-n", switch, "link", "set", port, "master", "bridge", "up"])
            run(["ip", "-n", inside, "addr", "add", f"{SUBNET}.{space}/24", "dev", "wire"])
            for device in ["lo", "wire"]:
                run(["ip", "-n", inside, "link", "set", device, "up"])
            run(["ip", "netns", "exec", inside, "tc", "qdisc", "add", "dev", "wire", "root", "tbf", "rate",
                 f"{megabits}mbit", "burst", "128kb", "limit", "16mb"])
        yield prefix
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", prefix + space], stderr=subprocess.DEVNULL, check=False)


def settings(model, ring, length, layout, corpus, steps, shard="optimizer"):
    keys = [f"model.{key}" for key in MODELS[model].split()] + [
        f"data.train={corpus}", f"mesh.sequence={ring}", f"mesh.layout={layout}", f"training.seq_len={length}",
        f"training.steps={steps}", "checkpoint.interval=0", f"training.shard={shard}"]
    keys += ["mesh.threads_per_rank=1"] if ring > 1 else []
    return ["--config", str(ROOT / "configs/long_ctx.yaml")] + [part for key in keys for part in ("--set", key)]


def train(options, case, corpus, shard="optimizer"):
    """Returns the seconds of each step except the first, which has cold caches."""
    model, ring, length, megabits, layout = case
    output = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=options.folder)) / "run"
    command = [options.bin / "train", *settings(model, ring, length, layout, corpus, options.steps, shard), "--output",
               output]
    if ring == 1:
        run(command)
    else:
        with hosts(ring, megabits) as prefix:
            agent = ROOT / "tests/hosts/run"
            launch = [ROOT / "scripts/launch", "-n", ring,
                      "--hosts", ",".join(f"{SUBNET}.{i + 1}:1" for i in range(ring))]
            for pair in [("plm_rsh_agent", f"{agent} --agent"), ("plm_rsh_no_tree_spawn", "1"), ("btl", "tcp,self"),
                         ("btl_tcp_if_include", f"{SUBNET}.0/24"), ("oob_tcp_if_include", f"{SUBNET}.0/24")]:
                for argument in ["--mca", *pair]:
                    launch += ["--mpirun", argument]
            text = " ".join(f"'{part}'" for part in launch + ["--"] + command)
            run([agent, "--agent", f"{SUBNET}.1", f"cd {options.folder}; {text}"],
                env={**os.environ, "RINGTRAIN_HOSTS_PREFIX": prefix})
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(output.parent)
    return [line["seconds"] for line in lines if line["kind"] == "train"][1:]


def predict(options, case, corpus, rates, shard="optimizer"):
    """Returns the plan of a case on this machine with fitted rates and the case's links."""
    model, ring, length, megabits, layout = case
    text = (options.folder / "machine.yaml").read_text()
    text = re.sub(r"product_bandwidth:.*\n", "", text)
    text = re.sub(r"pair_seconds:.*\n", f"pair_seconds: {{forward: {rates['pair_forward']}, backward: "
                  f"{rates['pair_backward']}}}\nproduct_bandwidth: {rates['product_bandwidth']}\n", text)
    text = re.sub(r"(memory: .*bandwidth: )[^}]*", rf"\g<1>{rates['memory_bandwidth']}", text)
    if ring > 1:
        level = (f"levels:\n  - {{ranks: 65536, bandwidth: {megabits * 1e6 / 8 * rates['share']}, "
                 f"latency: {rates['latency']}, core_bandwidth: {rates['core_bandwidth']}}}\n")
        text = re.sub(r"levels:\n.*", level, text, flags=re.DOTALL)
    path, plan = options.folder / "hardware.yaml", options.folder / "plan.json"
    path.write_text(text)
    run([options.bin / "plan", *settings(model, ring, length, layout, corpus, options.steps, shard), "--hardware", path,
         "--output", plan])
    return json.loads(plan.read_text())


def fit(options, cases, measured, corpus):
    """Returns the rates that are nearest to the runs not held out: varies each one up and down, in decreasing steps."""
    used = [case for index, case in enumerate(cases) if index % 3 != 2 and str(case) in measured]

    def error(rates):
        return statistics.mean(abs(math.log(predict(options, case, corpus, rates)["step_seconds"] /
                                            statistics.median(measured[str(case)]))) for case in used)

    rates, best = dict(START), error(START)
    for step in [1.6, 1.3, 1.15]:
        for name in rates:
            for factor in [step, 1 / step]:
                candidate = {**rates, name: rates[name] * factor}
                if candidate["share"] <= START["share"] and (tried := error(candidate)) < best:
                    rates, best = candidate, tried
                    break
    print("fitted: " + ", ".join(f"{name} {value:.3g}" for name, value in rates.items()), flush=True)
    return rates


def table(options, cases, measured, corpus, rates):
    """Prints a row for each ring, length, rate, and layout, with a column for each model."""
    errors, rows = {True: [], False: []}, {}
    for index, case in enumerate(cases):
        if str(case) not in measured:
            continue
        held_out, seconds = index % 3 == 2, statistics.median(measured[str(case)])
        plan = predict(options, case, corpus, rates)
        error = 100 * (plan["step_seconds"] / seconds - 1)
        errors[held_out].append(abs(error))
        model, ring, length, megabits, layout = case
        rows.setdefault(f"{ring}, {length}, {megabits or '-'}, {layout}", {})[model] = (
            f"{plan['step_seconds']:.4f}, {seconds:.4f}, {error:+.1f}{'°' if held_out else ''}")
    print("| ring, tokens, Mbit/s, layout | " + " | ".join(FITTED) + " |\n" + "|---" * (1 + len(FITTED)) + "|")
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells.get(model, "-") for model in FITTED) + " |")
    print()
    for held_out, name in [(False, "the others"), (True, "held out")]:
        if errors[held_out]:
            print(f"{name}: {len(errors[held_out])} configs, median error {statistics.median(errors[held_out]):.1f} %, "
                  f"largest {max(errors[held_out]):.1f} %")


def sharding(options, corpus, rates):
    """Prints steps with and without sharded weights. Runs alternate, so that both have the same conditions."""
    print("| model, ring, tokens, Mbit/s | optimizer | weights | weights / optimizer |\n" + "|---" * 4 + "|")
    for case in SHARDED:
        seconds = {"optimizer": [], "weights": []}
        for _ in range(options.rounds):
            for shard, steps in seconds.items():
                steps += train(options, case, corpus, shard)
        cells, medians = [], {shard: statistics.median(steps) for shard, steps in seconds.items()}
        for shard, measured in medians.items():
            predicted = predict(options, case, corpus, rates, shard)["step_seconds"]
            cells.append(f"{predicted:.4f}, {measured:.4f}, {100 * (predicted / measured - 1):+.1f}")
        print(f"| {', '.join(map(str, case[:4]))} | {cells[0]} | {cells[1]} | "
              f"{medians['weights'] / medians['optimizer']:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="bench/planning/predict", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/predict")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--sharding", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    start = time.monotonic()
    options.bin, options.folder = options.bin.resolve(), options.folder.resolve()
    missing = [program for program in ("train", "plan", "prepare") if not (options.bin / program).exists()]
    if missing:
        sys.exit(f"predict: {options.bin} has no {missing[0]}: build it (scripts/quickstart), or name another --bin")
    options.folder.mkdir(parents=True, exist_ok=True)
    corpus, state = options.folder / "corpus.h5", options.folder / "measured.json"
    measured = json.loads(state.read_text()) if state.exists() else {}
    cases = [(model, *case) for model in FITTED for case in CASES]
    fitted = options.folder / "fitted.json"
    if not (options.table or options.fit):
        if not (options.folder / "machine.yaml").exists():
            run([options.bin / "plan", "--measure", "--output", options.folder / "machine.yaml"])
        if not corpus.exists():
            run([options.bin / "prepare", "--synthetic", "recall", "--documents", 40, "--length", 9000, "--output",
                 corpus])
        if options.sharding:
            sharding(options, corpus, json.loads(fitted.read_text()) if fitted.exists() else START)
            return
        for case in cases:
            if str(case) in measured or time.monotonic() - start > options.seconds:
                continue
            measured[str(case)] = train(options, case, corpus)
            state.write_text(json.dumps(measured, indent=1))
            print(case, measured[str(case)], flush=True)
    if options.fit:
        fitted.write_text(json.dumps(fit(options, cases, measured, corpus)))
    table(options, cases, measured, corpus, json.loads(fitted.read_text()) if fitted.exists() else START)


if __name__ == "__main__":
    main()
