"""Reads the Markdown pages of this repository: their fenced blocks, prose, and links.

Marks for the tests are in comments right above a fenced block, `<!-- test: PART; PART -->`, where a PART is
  OLD -> NEW            replaced in the block before it is used: a smaller size, say
  in FILE: OLD -> NEW   replaced in the working copy's FILE, from there on
  file NAME             the block is written to NAME
  needs PROGRAM         the block is left out if the machine does not have PROGRAM
  exact                 the block's numbers must also be printed exactly
  is FILE               the block is FILE, or consecutive lines of it
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of its opening fence
    language: str
    text: str
    marks: list  # of str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def mark(self, word):
        """Return the text after `word` in the first mark that begins with it; None if there is none."""
        return next((mark[len(word):].strip() for mark in self.marks if mark.split()[0] == word), None)

    def replacements(self):
        """Return (file or None, old, new) of each replacement."""
        found = []
        for mark in self.marks:
            match = re.fullmatch(r"(?:in (\S+): )?(.+) -> (.+)", mark)
            if match:
                found.append(match.groups())
            elif mark.split()[0] not in ("file", "needs", "exact", "is"):
                raise ValueError(f"{self}: not a mark: {mark}")
        return found

    def small(self):
        """Return the text after its own replacements."""
        return replaced(self.text, [(old, new) for file, old, new in self.replacements() if file is None], self)


def replaced(text, pairs, where):
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"{where}: a mark replaces {old!r}, which is not there")
        text = text.replace(old, new)
    return text


def blocks(page):
    found, marks, block = [], [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if block is not None:
            if line.startswith("```"):
                found.append(block)
                block = None
            else:
                block.text += line + "\n"
        elif line.startswith("```"):
            block = Block(page, number, line[3:].strip(), "", marks)
            marks = []
        elif match := re.fullmatch(r"<!-- test: (.*) -->", line):
            marks += [part.strip() for part in match[1].split("; ")]
        elif marks:
            raise ValueError(f"{page.name}:{number}: marks without a block below them")
    if block is not None:
        raise ValueError(f"{block}: the block has no end")
    return found


def prose(page):
    """Return (number, line) of every line outside fenced blocks and comments."""
    lines, fenced, comment = [], False, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            comment = comment or line.startswith("<!--")
            if not comment:
                lines.append((number, line))
            comment = comment and not line.endswith("-->")
    return lines
