"""The memory plan of every rank, as `train --dry-run` prints it."""
import re

from comparison import table

TAGS = ("weights", "gradients", "optimizer", "activations", "ring", "workspace", "checkpoint", "total")


def ranks_of(report):
    """Return the memory of each rank: {tag: bytes}, and under "tensors" {name: bytes}."""
    ranks = {}
    for block in re.split(r"^memory of (?=rank |each )", report, flags=re.MULTILINE)[1:]:
        numbers = re.match(r"(?:rank|each of the ranks) ([\d, ]+)\n", block)[1]
        tags = {tag: int(re.search(rf"^  {tag} +(\d+) bytes", block, re.MULTILINE)[1]) for tag in TAGS}
        tensors = {match[2]: int(match[1])
                   for match in re.finditer(r"^ {6,}(\d+)  +(\S.*?) (?:float|int|uint)\d+ \[", block, re.MULTILINE)}
        for rank in numbers.split(","):
            ranks[int(rank)] = tags | {"tensors": tensors}
    return ranks


def record(ranks, length):
    """Return a ring's memory for this many tokens: by tag of the rank with the most, and of all ranks together."""
    rank = max(ranks.values(), key=lambda held: held["total"])
    return {"tokens": length, "ranks": len(ranks), "bytes": {tag: rank[tag] for tag in TAGS},
            "all_ranks_bytes": sum(held["total"] for held in ranks.values())}


def table_of(records):
    """Return the records as a table in MiB."""
    lines = [[f"{record['tokens'] // 1024}K", str(record["ranks"]),
              *(f"{size / 2**20:.1f}" for size in (*record["bytes"].values(), record["all_ranks_bytes"]))]
             for record in records]
    return table.aligned(lines, ["tokens", "ranks", *TAGS, "all ranks"])
