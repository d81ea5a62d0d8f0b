"""What all groups share: how many pairs, how many cores, and the processes that answer questions."""
import dataclasses
import pathlib

from comparison.table import Figure
from comparison.workers import Worker, WorkerError

PEERS = pathlib.Path(__file__).resolve().parents[2] / "peers"


@dataclasses.dataclass
class Context:
    quick: bool
    pairs: int | None  # None: the group's own number
    threads: int
    peer_python: str | None
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

    def peer(self, script, *arguments):
        """Return a new process of a peer; whoever asks for it closes it."""
        if self.peer_python is None:
            raise WorkerError("there is no interpreter with PyTorch")
        return Worker([self.peer_python, "-u", *arguments, PEERS / script] if not arguments else
                      [self.peer_python, "-u", PEERS / script, *arguments], self.threads, self.threads)

    def product(self, threads, seconds=0.25):
        """Return the rate of the fastest library's large product, measured now, and a Figure-like dict of all."""
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
    """Absolute figures, gathered a value at a time under their names."""

    def __init__(self):
        self._figures = {}

    def add(self, what, unit, value):
        self._figures.setdefault(what, Figure(what, unit, [])).values.append(value)

    def all(self):
        return list(self._figures.values())


def measure_pairs(row, count, pair):
    """Appends the ratio that pair() gives to the row, count times; a row whose peer fails stays without any."""
    try:
        for _ in range(count):
            row.pairs.append(pair())
    except WorkerError as error:
        row.pairs.clear()
        row.why = str(error)
