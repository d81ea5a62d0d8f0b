#!/usr/bin/env python3
"""Makes build/models/books: two books as plain text, from Debian's packages anarchism, bible-kjv and bible-kjv-text.

usage: tests/models/make_books.py

Each book is a folder, and each chapter a file: sections of An Anarchist FAQ (HTML without its tags), and the books of
the King James Bible (without verse numbers). Packages are downloaded with apt-get and unpacked, not installed."""
import glob
import html.parser
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BOOKS = os.path.join(ROOT, "build", "models", "books")


class Text(html.parser.HTMLParser):
    """Collects the visible text: paragraphs by lines."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("head", "script", "style")
        if tag in ("p", "br", "div", "li", "blockquote", "h1", "h2", "h3", "h4"):
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("head", "script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))

    def text(self):
        lines = (line.strip() for line in "".join(self.parts).split("\n"))
        return "\n".join(line for line in lines if line) + "\n"


def write(book, name, text):
    os.makedirs(os.path.join(BOOKS, book), exist_ok=True)
    with open(os.path.join(BOOKS, book, name + ".txt"), "w") as file:
        file.write(text)


def anarchism(folder):
    for path in sorted(glob.glob(f"{folder}/usr/share/doc/anarchism/html/sec*.html")):
        reader = Text()
        with open(path, encoding="utf-8", errors="replace") as file:
            reader.feed(file.read())
        write("anarchism", os.path.splitext(os.path.basename(path))[0], reader.text())


def bible(folder):
    verses = subprocess.run([f"{folder}/usr/bin/bible", "-f", "-p", f"{folder}/usr/lib", "Gen1:1-Rev22:21"], check=True,
                            capture_output=True, text=True, cwd=f"{folder}/usr/lib").stdout
    books = {}
    for line in verses.splitlines():
        verse = re.match(r"(\w+?)(\d+):(\d+) (.*)", line)
        if verse:
            books.setdefault(verse[1], []).append(verse[4])
    for number, (name, lines) in enumerate(books.items(), 1):
        write("bible", f"{number:02}-{name}", "\n".join(lines) + "\n")


def main():
    if len(sys.argv) > 1:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "anarchism", "bible-kjv", "bible-kjv-text"], cwd=folder, check=True,
                       stderr=subprocess.DEVNULL)
        for package in glob.glob(f"{folder}/*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        anarchism(folder)
        bible(folder)
    for book in sorted(os.listdir(BOOKS)):
        files = glob.glob(os.path.join(BOOKS, book, "*.txt"))
        print(f"{os.path.join(BOOKS, book)}: {len(files)} texts, {sum(map(os.path.getsize, files)):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
