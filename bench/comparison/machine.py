"""The machine as the report names it, and how a process is put on its cores."""
import os
import pathlib
import platform
import subprocess
import time


def say(text):
    print(f"\n==> [{time.strftime('%H:%M:%S')}] {text}", flush=True)


def output_of(command):
    """Return a command's standard output, empty if it cannot be had."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(threads, peer_python):
    commit = output_of(["git", "rev-parse", "--short=12", "HEAD"])
    changed = output_of(["git", "status", "--porcelain", "--untracked-files=no"])
    return {
        "machine": cpu_model(),
        "cores": threads,
        "load": os.getloadavg()[0],
        "commit": commit + (" with changes" if changed else ""),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "compiler": output_of(["c++", "--version"]).split("\n", maxsplit=1)[0],
        "peer": output_of([peer_python, "-c", "import torch; print('PyTorch', torch.__version__)"]) if peer_python else "",
    }


def text(about):
    return "\n".join(f"{name:9} {value}" for name, value in about.items() if value != "")


def pinned(command, threads):
    """Return the command on the first `threads` of the cores this process may use."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return ["taskset", "--cpu-list", ",".join(map(str, cores))] + [str(part) for part in command]


def environment(threads):
    """Return an environment in which every threaded library keeps to `threads` threads."""
    counts = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return os.environ | counts | {"CUDA_VISIBLE_DEVICES": ""}
