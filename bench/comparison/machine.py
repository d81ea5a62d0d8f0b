"""Describes the machine for the report, and runs a process on given cores."""
import os
import pathlib
import platform
import subprocess
import time


# Prints e.g. "PyTorch 2.9.0, float32 products by mkl, others by oneDNN 3.7.1, AVX512".
PYTORCH = r"""
import re, torch
built = torch.__config__.show()
found = lambda pattern: (re.findall(pattern, built) or ["?"])[0]
print(f"PyTorch {torch.__version__}, float32 products by {found('BLAS_INFO=([^,]+)')}, others by oneDNN "
      f"{found('MKL-DNN v([0-9.]+)')}, {torch.backends.cpu.get_cpu_capability()}")
"""
DISTURBING = 0.1  # cores used by other processes during a measurement, above which it counts as disturbed


def say(text):
    print(f"\n==> [{time.strftime('%H:%M:%S')}] {text}", flush=True)


def output_of(command):
    """Return a command's standard output, empty if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(threads, baseline_python):
    commit = output_of(["git", "rev-parse", "--short=12", "HEAD"])
    changed = output_of(["git", "status", "--porcelain", "--untracked-files=no"])
    return {
        "machine": cpu_model(),
        "cores": threads,
        "load": os.getloadavg()[0],
        "commit": commit + (" with changes" if changed else ""),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "compiler": output_of(["c++", "--version"]).split("\n", maxsplit=1)[0],
        "baseline": output_of([baseline_python or "false", "-c", PYTORCH]),
    }


def text(about):
    return "\n".join(f"{name:9} {value}" for name, value in about.items() if value != "")


def pinned(command, threads):
    """Return the command on the first `threads` of the cores this process may use."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return ["taskset", "--cpu-list", ",".join(map(str, cores))] + [str(part) for part in command]


def environment(threads):
    """Return an environment in which every threaded library uses `threads` threads."""
    counts = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return os.environ | counts | {"CUDA_VISIBLE_DEVICES": ""}


class Interference:
    """The number of cores that other processes have used since this object was made. A measurement on a busy machine is
    worth little, and the machine does not report it by itself."""

    def __init__(self):
        self._start = self._now()

    def cores(self):
        """Return the cores that others used on average, and those that the hypervisor gave to other machines."""
        (wall, all_busy, own, stolen), (wall0, all_busy0, own0, stolen0) = self._now(), self._start
        seconds = max(wall - wall0, 1e-3)
        return max(0.0, (all_busy - all_busy0 - own + own0) / seconds), (stolen - stolen0) / seconds

    @staticmethod
    def _now():
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, hard, soft, stolen = map(
            int, pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n", maxsplit=1)[0].split()[1:9])
        return time.monotonic(), (user + nice + system + hard + soft) / tick, own_ticks() / tick, stolen / tick


def own_ticks():
    """Return the processor time of this process, its living descendants, and those that have already been waited
    for."""
    times, parents = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:  # it has ended since
                continue
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = sum(map(int, fields[11:15]))

    def is_ours(process):
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return sum(ticks for process, ticks in times.items() if is_ours(process))
