#!/usr/bin/env python3
"""Compares the pages with the tree: links are valid, paths exist, lines are short, no page uses a word that
CONTRIBUTING.md lists as not used, the picture is valid, and docs/configuration.md is what `train --help-config` prints. With
RINGTRAIN_UPDATE_PAGES=1, that page is rewritten.

RINGTRAIN_BIN names the folder of the programs; scripts/lint checks the lines without them."""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages  # noqa: E402  (the path above comes first)

FOLDERS = "framework|kernels|parallel|data|layers|reference|train|tests|bench|scripts|docs|configs|cmake|examples|ringtrain"
FLOORS = ("framework", "data", "kernels", "parallel", "layers", "reference", "train", "extras", "ringtrain")
COLUMNS = 120
BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", pages.ROOT / "build/release/bin"))


def anchor(heading):
    """Return a heading's anchor as on GitHub."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page):
    return {anchor(line.lstrip("#")) for _, line in pages.prose(page) if re.match(r"#+ ", line)}


def alternatives(path):
    """Return the paths that a.{h,cpp} and a/{b,c} represent."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [p for word in match[1].split(",") for p in alternatives(path[:match.start()] + word + path[match.end():])]


class Pages(unittest.TestCase):
    def each_line(self):
        for page in pages.PAGES:
            for number, line in pages.prose(page):
                yield page, f"{page.relative_to(pages.ROOT)}:{number}", line

    def test_the_readmes_picture_is_that_of_the_tables(self):
        subprocess.run([sys.executable, "bench/results/pictures.py", "--check"], cwd=pages.ROOT, check=True, timeout=60)

    def test_links_lead_somewhere(self):
        found = 0
        for page, where, line in self.each_line():
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                found += 1
                if target.startswith("https://"):
                    continue
                path, _, name = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                self.assertTrue(file.exists(), f"{where}: {target} leads nowhere")
                if name:
                    self.assertIn(name, anchors(file), f"{where}: {target}: there is no such heading")
        self.assertGreater(found, 20)

    def test_paths_in_the_pages_exist(self):
        found = 0
        for _, where, line in self.each_line():
            for path in re.findall(rf"`((?:{FOLDERS})/[\w./*{{}},-]*)`", line):
                found += 1
                for one in alternatives(path):
                    if re.search(r"[A-Z]{3}", one):  # `kernels/NAME.cpp` represents any
                        continue
                    self.assertTrue(glob.glob(str(pages.ROOT / one)), f"{where}: there is no {one}")
        self.assertGreater(found, 20)

    def test_lines_are_short(self):
        for page, where, line in self.each_line():
            if not line.startswith("|"):  # a row cannot be broken
                self.assertLessEqual(len(line), COLUMNS, f"{where} has {len(line)} columns")

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((pages.ROOT / "README.md").read_text(encoding="utf-8").split()), 950)

    def test_files_that_pages_show_are_as_shown(self):
        found = 0
        for page in pages.PAGES:
            for block in pages.blocks(page):
                if name := block.mark("is"):
                    found += 1
                    file = (pages.ROOT / name).read_text(encoding="utf-8")
                    self.assertIn("\n" + block.text, "\n" + file, f"{block} is not in {name}")
        self.assertGreater(found, 0)

    def test_the_version_is_the_same_everywhere(self):
        text = {name: (pages.ROOT / name).read_text(encoding="utf-8") for name in ("CMakeLists.txt", "README.md",
                                                                                   "CHANGELOG.md")}
        version = re.search(r"^project\(ringtrain VERSION (\S+)", text["CMakeLists.txt"], re.M)[1]
        self.assertIn(f"The version is {version}", text["README.md"])
        self.assertEqual(re.search(r"^## (\S+)", text["CHANGELOG.md"], re.M)[1], version)
        for project in (pages.ROOT / "examples").glob("*/CMakeLists.txt"):
            for found in re.findall(r"find_package\(ringtrain (\S+)", project.read_text(encoding="utf-8")):
                self.assertEqual(found, version.rpartition(".")[0], project)

    def test_every_script_is_on_a_page(self):
        text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
        for script in sorted((pages.ROOT / "scripts").iterdir()):
            if script.is_file() and script.name != "common.sh":
                self.assertIn(f"scripts/{script.name}", text, "no page names it")

    def test_the_configuration_page_is_what_the_program_prints(self):
        command = [BIN / "train", "--help-config"]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=300, check=True)
        printed = result.stdout
        page = pages.ROOT / "docs" / "configuration.md"
        if os.environ.get("RINGTRAIN_UPDATE_PAGES") == "1":
            page.write_bytes(printed)
        self.assertEqual(page.read_text(encoding="utf-8"), printed.decode(),
                         "write it anew: build/release/bin/train --help-config > docs/configuration.md")


def words_in(line, words, phrases):
    """Return the words in a line, outside code, quotes, the targets of links, and allowed phrases."""
    for pattern in ("`[^`]*`", '"[^"]*"', r"\]\([^)]*\)", *phrases):
        line = re.sub(pattern, "", line)
    return [word for word in words if re.search(rf"\b{word}\b", line, re.I)]


def words_not_used():
    """Return the words that CONTRIBUTING.md lists as not used, and the phrases that are allowed anyway."""
    words, phrases = [], []
    for _, line in pages.prose(pages.ROOT / "CONTRIBUTING.md"):
        if match := re.fullmatch(r"\* (`[^(:]*)(\(.*\))?: .*", line):
            words += re.findall("`(.+?)`", match[1])
            phrases += re.findall("`(.+?)`", match[2] or "")
    return words, phrases


def words_in_names(line, words, phrases):
    """Return the words in the names of a line of code, outside comments and quotes."""
    code = re.sub(r'"[^"]*"|//.*|#include.*', "", line)
    return words_in(re.sub(r"_+|(?<=[a-z0-9])(?=[A-Z])", " ", code), words, phrases)


class Words(unittest.TestCase):
    def test_none_that_is_listed_as_not_used_is_on_a_page(self):
        words, phrases = words_not_used()
        self.assertGreater(len(words), 10)
        others = [page for folder in ("bench", "configs", "tests") for page in (pages.ROOT / folder).rglob("*")
                  if page.suffix in (".md", ".yaml")]
        found = []
        for page in [*pages.PAGES, pages.ROOT / "CHANGELOG.md", *others]:
            for number, line in pages.prose(page):
                found += [f"{page.name}:{number}: {word}" for word in words_in(line, words, phrases)]
        self.assertEqual(found, [])

    def test_none_of_them_is_in_a_name_of_a_header(self):
        headers = [path for folder in FLOORS for path in (pages.ROOT / folder).rglob("*.*h") if path.suffix in (".h", ".cuh")]
        self.assertGreater(len(headers), 200)
        words, phrases = words_not_used()
        found = []
        for header in headers:
            for number, line in enumerate(header.read_text(encoding="utf-8").splitlines(), 1):
                found += [f"{header}:{number}: {word}" for word in words_in_names(line, words, phrases)]
        self.assertEqual(found, [])

    def test_comments_do_not_count_in_code(self):
        self.assertEqual(words_in_names('int in_place; // told "place"', ["told", "place"], ["in place"]), [])
        self.assertEqual(words_in_names("bool told_ = QueryPlace();", ["told", "place"], []), ["told", "place"])

    def test_code_quotes_and_phrases_do_not_count(self):
        self.assertEqual(words_in("`told` \"told\" [it](told.md), in place", ["told", "place"], ["in place"]), [])
        self.assertEqual(words_in("Told in place of a place", ["told", "place"], ["in place"]), ["told", "place"])


def rows(page, first):
    """Return the rows of the page's table whose header begins with a cell, each as a list of cells."""
    text = (pages.ROOT / page).read_text(encoding="utf-8").split(f"\n| {first} |")[1]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n\n")[0].splitlines()[2:]]


class Planned(unittest.TestCase):
    def test_the_planned_figures_are_those_that_plan_prints(self):
        if not (BIN / "plan").exists():
            self.skipTest("this build has no extras")
        block = next(block for block in pages.blocks(pages.ROOT / "docs" / "planning.md") if "llama_70b" in block.text)
        printed = subprocess.check_output(["bash", "-c", block.text.replace("build/release/bin", str(BIN))],
                                          cwd=pages.ROOT, stdin=subprocess.DEVNULL, text=True, timeout=300)
        plans = re.findall(r"\nneeds ([\d.]+) GiB [^\n]*; needs ([\d.]+ \wiB) [^\n]*it fits.*?a step takes ([\d.]+) s:.*?"
                           r"\n([\d.e+]+) tokens/s; MFU ([\d.]+) %.*?; ([\d.]+) hours in total", printed, re.S)
        fits, table = plans[:5], plans[5:]
        self.assertEqual([row[3:] for row in rows("docs/planning.md", "model, tokens per sequence")],
                         [[f"{memory} GiB", host, f"{float(step):,.0f} s", f"{mfu}%"]
                          for memory, host, step, _, mfu, _ in fits])
        self.assertEqual([row[1:] for row in rows("README.md", "context")],
                         [[f"{int(float(f'{float(rate):.3g}')):,}", f"{float(mfu):.0f}%", f"{float(memory):.0f} GiB",
                           f"{float(f'{float(hours):.2g}'):g} hours"] for memory, _, _, rate, mfu, hours in table])
        hosts = [f"{float(host.split()[0]):.0f}" for _, host, *_ in table[1:]]
        self.assertIn(f"({hosts[0]} and {hosts[1]} GiB)", (pages.ROOT / "README.md").read_text("utf-8"))

    def test_what_fits_on_one_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            for context, recompute, offload, memory, host in rows("docs/gpus.md", "context"):
                tokens = int(re.match(r"\d+", context)[0]) << (20 if "M" in context else 10)
                keys = {"seq_len": tokens, "recompute": recompute, "offload": offload}
                subprocess.check_output([BIN / "plan", "--config", "configs/long_ctx_gpu.yaml", "--hardware", "h200",
                                         *(f"--set=training.{key}={value}" for key, value in keys.items()),
                                         f"--output={folder}/plan.json"], cwd=pages.ROOT, timeout=300)
                found = json.loads(pathlib.Path(folder, "plan.json").read_text("utf-8"))
                self.assertEqual([f"{found['memory_needed'] / 1e9:.1f}", f"{found['host_needed'] / 1e9:.1f}"],
                                 [memory, host.replace("-", "0.0")])


class Picture(unittest.TestCase):
    FILE = pages.ROOT / "docs" / "ring.svg"

    def test_it_is_whole_and_needs_no_other_page(self):
        root = xml.parse(self.FILE).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        _, _, width, height = map(float, root.get("viewBox").split())
        names = {element.get("id") for element in root.iter()}
        texts = 0
        for element in root.iter():
            for key, value in element.attrib.items():
                self.assertNotIn("href", key, "it refers to something outside")
                for name in re.findall(r"url\(#(\w+)\)", value):
                    self.assertIn(name, names)
            if element.tag.endswith("}text"):
                texts += 1
                x, y = float(element.get("x")), float(element.get("y"))
                self.assertTrue(0 <= x <= width and 0 <= y <= height, f"{element.text} lies outside")
        self.assertGreater(texts, 10)

    def test_it_renders(self):
        if not shutil.which("rsvg-convert"):
            self.skipTest("there is no rsvg-convert")
        with tempfile.TemporaryDirectory() as folder:
            image = pathlib.Path(folder) / "ring.png"
            subprocess.run(["rsvg-convert", self.FILE, "-o", image], stdin=subprocess.DEVNULL, timeout=300, check=True)
            self.assertGreater(image.stat().st_size, 10_000)


class Judging(unittest.TestCase):
    def test_anchors_are_github_s(self):
        self.assertEqual(anchor(" Ranks as processes"), "ranks-as-processes")
        self.assertEqual(anchor(" PyTorch, and the machine's own"), "pytorch-and-the-machines-own")

    def test_alternatives(self):
        self.assertEqual(alternatives("a/{b,c}.{h,cpp}"), ["a/b.h", "a/b.cpp", "a/c.h", "a/c.cpp"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
