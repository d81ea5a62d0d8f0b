"""What all groups share: how many pairs, how many cores, and the processes that answer questions."""
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
        """Return how many pairs to measure: as asked, else 5, or `quick` of them."""
        return self.pairs or (quick if self.quick else 5)

    @property
    def ours(self):
        """Our kernels. Threads are told with each question; libraries inside keep to one a thread."""
        if self._ours is None:
            self._ours = Worker([self.bin / "compare_worker"], self.threads, library_threads=1)
        return self._ours

    def baseline(self, script, *arguments):
        """Return a new process of a baseline; whoever asks for it closes it."""
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
    """Absolute figures, gathered a value at a time under their names; the last ones can be taken back."""

    def __init__(self):
        self._figures = {}
        self._open = []  # names of the values that can still be taken back

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
    """Calls pair() until each row has `count` ratios: pair returns one a row. A pair beside a busy neighbour is thrown
    away and measured again, `count` times at most; what is disturbed after that is kept and counted. When a baseline
    fails, no row keeps any."""
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
