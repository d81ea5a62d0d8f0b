#!/usr/bin/env python3
"""Compares the names in pages and comments with the tree: the tests, files, identifiers, and programs that they mention
exist. This finds a name that was changed only in the code."""
import fnmatch
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages  # noqa: E402  (the path above comes first)

ROOT = pages.ROOT
PRODUCT = ("framework", "data", "kernels", "parallel", "layers", "reference", "train", "extras")
OTHERS = ("tests", "bench", "scripts", "cmake", "configs", "examples", "ringtrain")
CODE = (".h", ".cpp", ".cu", ".cuh", ".c")
OTHERS_NAMES = {"bytes_to_unicode", "from_utf8_lossy", "sort_keys"}  # of GPT-2's tokenizer, Rust and Python
SMALL_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def files(folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def place(path, text, position):
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}"


def comments(text):
    """Returns (position, comment) of each // comment of C++ code; a string with // in it counts as one, which does not
    matter here."""
    return [(match.start(), match[0]) for match in re.finditer(r"//[^\n]*", text)]


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def identifiers(text):
    return set(re.findall(r"[A-Za-z_]\w*", text))


def called(text):
    """Returns the names before a parenthesis: functions, and constructs that look like one."""
    return set(re.findall(r"([A-Za-z_]\w*)(?:<[^<>()]*>)?\(", text))


class Tests:
    """The tests of the tree, by their names in the pages."""

    def __init__(self):
        self.names, self.prefixes, self.groups = {}, {}, set()
        for path in files(["tests"]):
            text = read(path)
            if path.suffix == ".cpp":
                for suite, name in re.findall(r"\bT(?:YPED_T)?EST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text):
                    self.names.setdefault(suite, set()).add(name)
                for prefix, suite in re.findall(r"\bINSTANTIATE_TEST_SUITE_P\(\s*(\w+),\s*(\w+)", text):
                    self.prefixes.setdefault(suite, set()).add(prefix)
            elif path.suffix == ".py":
                self.groups |= set(re.findall(r"^class (\w+)\(unittest\.TestCase\)", text, re.M))
        self.ctest = set()
        cmake = read(ROOT / "tests" / "CMakeLists.txt")
        declared = r"(?:add_test\(NAME |ringtrain_python_test\()(\S+)"
        for variables, body in re.findall(r"foreach\(([^)]*)\)(.*?)endforeach", cmake, re.S):
            variable, *values = variables.split()
            for name in re.findall(declared, body):
                self.ctest |= {name.replace("${" + variable + "}", value) for value in values}
        self.ctest |= {name for name in re.findall(declared, cmake) if "$" not in name}
        fuzzers = (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp")
        self.ctest |= {"fuzz_" + path.stem.removesuffix("_fuzz") for path in fuzzers}

    def lacks(self, name, suite_before):
        """Returns (what is wrong with the name of a test or None, its suite)."""
        if name in self.ctest or name in self.groups:
            return None, suite_before
        if name.startswith(("scripts/", "tests/")):
            script, *part = name.split()
            if part and script == "scripts/torture":
                script = f"scripts/torture.d/{part[0]}.sh"
            return None if (ROOT / script).exists() else "is not there", suite_before
        match = re.fullmatch(r"(?:(\w+)/)?(\w*\*?)(?:\.(\w+|\*))?(?:/\*)?", name)
        if not match:
            return "is no name of a test", suite_before
        prefix, suite, test = match.groups()
        suites = fnmatch.filter(self.names, suite or suite_before or "")
        if not suites:
            return "is a suite that no test has", suite_before
        if prefix and not any(prefix in self.prefixes.get(one, ()) for one in suites):
            return f"stands for {prefix}, where the suite is not instantiated so", suites[0]
        if test and test != "*" and not any(test in self.names[one] for one in suites):
            return "is no test of that suite", suites[0]
        return None, suites[0]


def tests_named(line, in_table):
    """Returns the names of tests in a line of a page: all code in a table's last cell, and what looks like one."""
    if in_table:
        last = re.split(r"(?<!\\)\|", line.strip().strip("|"))[-1]
        return re.findall(r"`([^`]+)`", last)
    return re.findall(r"`(scripts/torture \w+)`", line) + re.findall(r"`((?:\w+/)?[A-Z]\w*\.(?:[A-Z]\w*|\*)(?:/\*)?)`", line)


class Names(unittest.TestCase):
    def test_tests_that_the_pages_name_exist(self):
        tests, found, wrong = Tests(), 0, []
        for page in pages.PAGES:
            table = False
            for number, line in pages.prose(page):
                table = line.startswith("|") and (table or line.rstrip().endswith("| test |"))
                suite = None
                for name in tests_named(line, table):
                    found += 1
                    fault, suite = tests.lacks(name, suite)
                    if fault:
                        wrong.append(f"{page.relative_to(ROOT)}:{number}: {name} {fault}")
        self.assertEqual(wrong, [])
        self.assertGreater(found, 100)

    def expect_known(self, floors, pattern, is_known, least):
        """Expects names in comments of code to be known; there are more than so many. is_known returns None for what is
        no name."""
        found, wrong = 0, []
        for path in files(floors):
            if path.suffix not in CODE:
                continue
            text = read(path)
            for position, comment in comments(text):
                for name in re.findall(pattern, comment):
                    known = is_known(name)
                    found += known is not None
                    if known is False:
                        wrong.append(f"{place(path, text, position)}: there is no {name}")
        self.assertEqual(wrong, [])
        self.assertGreater(found, least)

    def test_files_that_comments_name_exist(self):
        known = ["/" + str(path.relative_to(ROOT)) for path in files(PRODUCT + OTHERS + ("docs",))]

        def is_known(name):
            if re.search(r"\b[A-Z]{3}", name):  # kernels/NAME.cpp represents any
                return None
            return any(one.endswith("/" + name) for one in known)

        self.expect_known(PRODUCT, r"(?<![\w./<-])\w[\w/]*/\w+\.(?:h\.in|h|cpp|cu|cuh|md|py|yaml)\b", is_known, 20)

    def test_functions_that_comments_name_exist(self):
        known = set()
        for path in files(PRODUCT + OTHERS):
            if path.suffix in CODE:
                known |= called(without_comments(read(path)))
        self.expect_known(PRODUCT + OTHERS, r"\b([A-Za-z_]\w*)\(\)", known.__contains__, 20)

    def test_names_with_underscores_in_comments_exist(self):
        known = set(OTHERS_NAMES)
        for path in files(PRODUCT + OTHERS):
            known |= identifiers(without_comments(read(path)) if path.suffix in CODE else read(path))
            known.add(path.stem)
        names = r"(?<![\w/.<-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/]|\.\w)"
        self.expect_known(PRODUCT, names, known.__contains__, 200)

    def test_names_of_code_in_the_pages_exist(self):
        known, functions = set(), set()
        for path in files(PRODUCT + OTHERS) + [ROOT / "CMakeLists.txt", ROOT / "CMakePresets.json"]:
            text = without_comments(read(path)) if path.suffix in CODE else read(path)
            known |= identifiers(text)
            known |= {path.stem, "fuzz_" + path.stem.removesuffix("_fuzz")}  # the names of benchmarks and fuzzers
            functions |= called(text)
        found, wrong = 0, []
        for page in pages.PAGES:
            for number, line in pages.prose(page):
                for code in re.findall(r"`([^`]+)`", line):
                    match = re.fullmatch(r"(?:\w+(?:::|\.))*([A-Za-z_]\w*)\(.*\)|([a-z]+_\w+|[A-Z][a-z]+[A-Z]\w+)", code)
                    if match:
                        found += 1
                        if match[1] not in functions and match[2] not in known:
                            wrong.append(f"{page.relative_to(ROOT)}:{number}: there is no {code}")
        self.assertEqual(wrong, [])
        self.assertGreater(found, 50)

    def test_the_page_of_promises_lists_every_part_of_torture(self):
        listed = re.findall(r"^\| `(\w+)` \|", read(ROOT / "docs" / "reliability.md").split("## Long tests")[1], re.M)
        self.assertEqual(sorted(listed), sorted(path.stem for path in (ROOT / "scripts" / "torture.d").glob("*.sh")))

    def test_programs_of_the_pages_are_those_that_are_built(self):
        cmake = read(ROOT / "CMakeLists.txt")
        commands = re.search(r"set\(ringtrain_commands ([\w ]+)\)", cmake)[1].split()
        built = commands + re.search(r"set\(ringtrain_extras ([\w ]+)\)", cmake)[1].split()
        usage = read(ROOT / "docs" / "usage.md")
        listed = re.search(r"The core commands are ([^.]*)\.", usage)
        self.assertIsNotNone(listed, "docs/usage.md lists them: 'The core commands are `train`, ...'")
        self.assertEqual(sorted(re.findall(r"`(\w+)`", listed[1])), sorted(commands))
        for page in [*pages.PAGES, ROOT / "CMakeLists.txt"]:
            for word in re.findall(r"\b(\w+) programs\b", read(page)):
                if word.lower() in SMALL_NUMBERS:
                    self.assertEqual(word.lower(), SMALL_NUMBERS[len(built) - 1], f"{page.name}: so many programs")
        for path in [*pages.PAGES, *files(["configs"])]:
            for name in re.findall(r"build/release/bin/(\w+)", read(path)):
                if name != "ringtrain" and not name.endswith(("_tests", "_bench")):
                    self.assertIn(name, built, f"{path.relative_to(ROOT)} runs it")


if __name__ == "__main__":
    unittest.main(verbosity=2)
