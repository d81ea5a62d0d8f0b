"""What all groups share: the number of pairs, the number of cores, and the processes that answer questions."""
import dataclasses
import pathlib

from comparison import machine
from comparison.table import Figure
from comparison.workers import Worker, WorkerError

BASELINES = pathlib.Path(__file__).resolve().parents[2] / "baselines"


@dataclasses.dataclass
class Context:
    quick: bool
    pairs: int | None  # None: the group's own number
    threads: int
    baseline_python: str | None
    bin: pathlib.Path
    _ours: Worker | None = None

    def count(self, quick=3):
        """Return the number of pairs: as requested, or else 5, or `quick` of them."""
        return self.pairs or (quick if self.quick else 5)

    @property
    def ours(self):
        """Our kernels. Each question gives the number of threads; libraries inside use one thread each."""
        if self._ours is None:
            self._ours = Worker([self.bin / "compare_worker"], self.threads, library_threads=1)
        return self._ours

    def baseline(self, script, *arguments):
        """Return a new process of a baseline; the caller closes it."""
        if self.baseline_python is None:
            raise WorkerError("there is no interpreter with PyTorch")
        return Worker([self.baseline_python, "-u", BASELINES / script, *arguments], self.threads, self.threads)

    def product(self, threads, seconds=0.25):
        """Return the rate of the fastest library's large product, measured now, and the rates of all by name."""
        rates = {}
        for library in self.ours.ask(kind="about")["libraries"]:
            rates[library] = rate(self.ours.ask(kind="sgemm", library=library, threads=threads, seconds=seconds))
        return max(rates.values()), rates

    def close(self):
        if self._ours is not None:
            self._ours.close()


def rate(answer):
    """Return the GFLOP/s of an answer."""
    return answer["flops"] / answer["seconds"] * 1e-9


class Figures:
    """Absolute figures, collected value by value under their names; the latest ones can be removed again."""

    def __init__(self):
        self._figures = {}
        self._open = []  # names of the values that can still be removed

    def add(self, what, unit, value):
        self._figures.setdefault(what, Figure(what, unit, [])).values.append(value)
        self._open.append(what)

    def keep(self):
        self._open.clear()

    def take_back(self):
        for what in self._open:
            self._figures[what].values.pop()
        self._open.clear()

    def all(self):
        return [figure for figure in self._figures.values() if figure.values]


def measure_pairs(rows, count, pair, figures):
    """Calls pair() until each row has `count` ratios: pair returns one per row. A pair measured while another process
    was busy is discarded and measured again, at most `count` times; later disturbed pairs are kept and counted. When a
    baseline fails, no row keeps any."""
    spare = count
    try:
        for _ in range(count):
            while True:
                figures.keep()
                interference = machine.Interference()
                ratios = pair()
                disturbed = sum(interference.cores()) > machine.DISTURBING
                if not disturbed or spare == 0:
                    break
                spare -= 1
                figures.take_back()
            for row, ratio in zip(rows, ratios, strict=True):
                row.pairs.append(ratio)
                row.disturbed += disturbed
    except WorkerError as error:
        for row in rows:
            row.pairs.clear()
            row.why = str(error)
