#!/usr/bin/env python3
"""Draws docs/results.svg, the picture of the README, from the tables of docs/long-context.md and bench/results/gpu.md.

usage: bench/results/pictures.py [--check]

--check writes nothing, and ends with 1 if the picture differs from that of the tables."""
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/results.svg"
GRAY, BLUE, ORANGE, DARK = "#64748b", "#0369a1", "#b45309", "#0f172a"


def table(page, first):
    """Returns the rows of the table whose header begins with a cell, as lists of cells."""
    lines = (ROOT / page).read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[begin + 2:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip().strip("*") for cell in line.strip("|").split("|")])
    return rows


def text(x, y, words, color=DARK, size=13, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>')


def curves():
    """The perplexity of SmolLM2-135M-Instruct by context: before, with only YaRN, and after training."""
    rows = table("docs/long-context.md", "context")
    lengths = [int(row[0].replace(",", "")) for row in rows]
    series = [("before", GRAY, 1), ("YaRN, untrained", ORANGE, 2), ("after 4 steps", BLUE, 3)]
    low, high = 10, 500
    across = lambda tokens: 70 + 330 * math.log(tokens / lengths[0]) / math.log(lengths[-1] / lengths[0])
    up = lambda value: 310 - 220 * math.log(value / low) / math.log(high / low)
    svg = [text(30, 34, "Perplexity of SmolLM2-135M-Instruct by context", size=18, weight="bold"),
           text(30, 56, "King James Bible, not used in the extension. The model was made for 8,192 tokens.", GRAY)]
    for value in (10, 20, 50, 100, 200, 500):
        svg.append(f'<path d="M70 {up(value):.1f}H400" stroke="#e2e8f0"/>')
        svg.append(text(62, up(value) + 4, value, GRAY, 12, "end"))
    svg += [text(across(length), 332, f"{length // 1024}K", GRAY, 12, "middle") for length in lengths]
    for name, color, column in series:
        values = [math.exp(float(row[column])) for row in rows]
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(lengths, values))
        svg.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        svg += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" fill="{color}"/>'
                for x, y in zip(lengths, values)]
        above = {"before": 0, "YaRN, untrained": -8, "after 4 steps": 16}[name]
        svg.append(text(408, up(values[-1]) + 4 + above, f"{values[-1]:.1f} {name}", color))
    return svg


def bars():
    """The share of an H100's peak that a training step of a 1B model reaches, and a compiled PyTorch step's."""
    svg = [text(580, 34, "Training a 1B model on one H100", size=18, weight="bold"),
           text(580, 56, "Model FLOPs utilization in bfloat16, same GPU, same hour", GRAY)]
    y = 92
    for case, _, ours, _, theirs, _ in table("bench/results/gpu.md", "tokens x sequences"):
        svg.append(text(580, y, f"{case} tokens"))
        for value, name, color in ((float(ours), "ringtrain", BLUE), (float(theirs), "PyTorch, compiled", GRAY)):
            y += 8
            svg.append(f'<rect x="580" y="{y}" width="{4 * value:.1f}" height="22" fill="{color}"/>')
            svg.append(text(588, y + 16, f"{value:.1f}%  {name}", "#ffffff"))
            y += 18
        y += 30
    return svg


def picture():
    head = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 350" font-family="Helvetica, Arial, sans-serif" '
            'role="img" aria-label="Perplexity by context before and after an extension; MFU compared with PyTorch">')
    return "\n".join([head, '<rect width="960" height="350" fill="#ffffff"/>', *curves(), *bars(), "</svg>", ""])


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    if sys.argv[1:] == []:
        PICTURE.write_text(picture())
    elif PICTURE.read_text() != picture():
        sys.exit(f"{PICTURE} is not drawn from the tables as they are: run {sys.argv[0]}")
