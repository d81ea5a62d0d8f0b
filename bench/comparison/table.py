"""Rows of the table: the target, the values of all pairs, and the verdict.

A row without a target (must is None) is printed but not judged. A row without pairs was not measured and never passes.
"""
import dataclasses
import statistics


@dataclasses.dataclass
class Row:
    what: str
    must: float | None = None
    aim: float | None = None
    at_most: bool = False  # the measure is better when it is smaller
    by_worst: bool = False  # judged by its worst pair, not by the median: for computed values, not times
    pairs: list = dataclasses.field(default_factory=list)
    disturbed: int = 0  # number of pairs during which others used the machine
    why: str = ""  # why it could not be measured

    @property
    def value(self):
        """The value by which the row is judged: the median of its pairs, or the worst of them."""
        if self.by_worst:
            return max(self.pairs) if self.at_most else min(self.pairs)
        return statistics.median(self.pairs)

    def reaches(self, target):
        """Return whether the value, rounded as it is printed, reaches target."""
        value = round(self.value, 3)
        return value <= target if self.at_most else value >= target

    @property
    def verdict(self):
        if not self.pairs:
            return "not measured"
        if self.must is None:
            return "-"
        if not self.reaches(self.must):
            return "MISSED"
        return "aim" if self.aim is not None and self.reaches(self.aim) else "reached"

    def as_dict(self):
        return dataclasses.asdict(self) | {"verdict": self.verdict, "value": self.value if self.pairs else None}


@dataclasses.dataclass
class Figure:
    """An absolute figure behind the ratios, with one value per pair."""

    what: str
    unit: str
    values: list

    def as_dict(self):
        return dataclasses.asdict(self)


def exit_code(rows):
    """Return 0 if all targets are reached, 1 if some are missed, 3 if something could not be measured."""
    return 1 if missed(rows) else 3 if unmeasured(rows) else 0


def missed(rows):
    return [row for row in rows if row.verdict == "MISSED"]


def unmeasured(rows):
    return [row for row in rows if row.verdict == "not measured"]


def aligned(lines, header):
    """Return lines of cells as a Markdown table with aligned columns."""
    cells = [header] + lines
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]

    def joined(line):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([joined(header), rule] + [joined(line) for line in lines])


def text(rows):
    def number(value):
        return "-" if value is None else f"{value:g}"

    lines = []
    for row in rows:
        sign = "≤ " if row.at_most else ""
        lines.append([row.what, "-" if row.must is None else sign + number(row.must),
                      "-" if row.aim is None else sign + number(row.aim),
                      f"{row.value:.3f}{' worst' if row.by_worst else ''}" if row.pairs else "-",
                      f"{min(row.pairs):.3f}–{max(row.pairs):.3f} of {len(row.pairs)}"
                      + (f", {row.disturbed} disturbed" if row.disturbed else "") if row.pairs else row.why[:40],
                      row.verdict])
    return aligned(lines, ["what", "must reach", "aim", "median", "spread", "verdict"])


def figures_text(figures):
    lines = [[figure.what, f"{statistics.median(figure.values):.4g}",
              f"{min(figure.values):.4g}–{max(figure.values):.4g}", figure.unit]
             for figure in figures if figure.values]
    return aligned(lines, ["figure", "median", "spread", "unit"])
