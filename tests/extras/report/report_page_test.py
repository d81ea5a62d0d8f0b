#!/usr/bin/env python3
"""The page of `report` for runs on two ranks: well-formed markup, in which every number equals its source to four
digits (metrics.jsonl, the plan, or the output of evaluate); a browser that opens it loads nothing else, and shows all
of it on every screen."""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
CHROMIUM = shutil.which("chromium")
CURVES = [("Loss", "nats per token", "loss", 1), ("Gradient norm", None, "grad_norm", 1),
          ("Learning rate", None, "lr", 1), ("Tokens per second", None, "tokens_per_second", 1),
          ("MFU", "% of the peak", "mfu", 100), ("Loss", "standard deviations from the steps before", "loss_z", 1),
          ("Gradient norm", "standard deviations from the steps before", "grad_norm_z", 1),
          ("Waiting for the ring", "seconds of rank 0 per step", "ring_wait_seconds", 1)]


def number(text):
    """Returns the number in a cell, "12.35K" as 12350."""
    units = {"K": 1e3, "M": 1e6, "G": 1e9, "%": 0.01}
    return float(text.rstrip("KMG%")) * units.get(text[-1], 1)


def bytes_text(count):
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if count < 1023.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1024


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, name, *arguments, code=0):
        result = subprocess.run([BIN / name, *map(str, arguments)], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, code, result.stdout)
        return result.stdout

    def json(self, name):
        return json.loads((self.folder / name).read_text())

    def open(self, name):
        """Reads a page as strictly as XML."""
        text = (self.folder / name).read_text()
        self.assertLess(len(text), 1_000_000)
        for part in ["<script", "http", "src=", "href", "url(", "@import"]:
            self.assertNotIn(part, text)
        return xml.etree.ElementTree.fromstring(text)

    def table(self, root, heading):
        """Returns the cells of the table after a heading."""
        for parent in root.iter():
            words = [child.text if child.tag == "h2" else None for child in parent]
            if heading in words:
                table = next(child for child in list(parent)[words.index(heading):] if child.tag == "table")
                return [[cell.text or "" for cell in row] for row in table.iter("tr")]
        self.fail(f"no table {heading}")

    def assert_value(self, cell, value):
        if value is None:
            self.assertEqual(cell, "-")
        else:
            self.assertAlmostEqual(number(cell), value, delta=0.00051 * abs(value))

    def assert_curve(self, root, title, unit, x_name, points):
        """Expects a figure whose tooltips give the points, and whose dots are at the positions of the axis' ticks."""
        figure = next(figure for figure in root.iter("figure")
                      if figure.find(".//b").text == title and figure.find(".//span").text == unit)
        self.assert_value(figure.findall(".//span")[1].text, points[-1][1])
        ticks = [(number(text.text), float(text.get("y")) - 4) for text in figure.iter("text")
                 if text.get("text-anchor") == "end" and text.get("x") == "50.0"]
        per_pixel = (ticks[-1][0] - ticks[0][0]) / (ticks[-1][1] - ticks[0][1])
        circles, line = list(figure.iter("circle")), figure.find(".//polyline").get("points").split()
        self.assertEqual(len(circles), len(points))
        for circle, place, (x, y) in zip(circles, line, points):
            name, value = circle.find("title").text.split(",")[0].split(": ")
            self.assertEqual(name, f"{x_name} {x:g}")
            self.assert_value(value, y)
            self.assertEqual(f"{circle.get('cx')},{circle.get('cy')}", place)
            self.assertAlmostEqual(ticks[0][0] + (float(circle.get("cy")) - ticks[0][1]) * per_pixel, y,
                                   delta=abs(0.3 * per_pixel))

    def make_run(self):
        self.run_program("prepare", "--synthetic", "recall", "--documents", 40, "--length", 400, "--output",
                         "corpus.h5")
        train = ["--output", "run", "--mesh", "1x2", "--set", "mesh.layout=contiguous"]
        settings = ["metrics.peak_flops=2e9", "training.steps=26", "evaluation.interval=13", "checkpoint.interval=0",
                    "training.seq_len=66", "evaluation.target_blocks=2", "evaluation.context_lengths=[16, 32]"]
        self.run_program("train", *train, "--config", ROOT / "configs/tiny.yaml",
                         *[word for setting in settings for word in ("--set", setting)], "--stop-after", 13)
        self.run_program("train", *train, "--resume", "--set", "training.loss_chunk=512")
        self.run_program("plan", "--config", "run/config.yaml", "--output", "plan.json")
        self.run_program("report", "run", "--plan", "plan.json")
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.steps = [line for line in lines if line["kind"] == "train"]
        self.evaluations = [line for line in lines if line["kind"] == "evaluation"]
        self.assertEqual((len(self.steps), len(self.evaluations)), (26, 2))

    def test_every_number_equals_its_source(self):
        self.make_run()
        root, steps, last = self.open("run/report.html"), self.steps, self.evaluations[-1]["results"]
        for title, unit, field, scale in CURVES:
            points = [(step["step"], scale * step[field]) for step in steps if field in step]
            self.assertEqual(len(points), 6 if field.endswith("_z") else 26)  # z-scores begin after 20 steps
            self.assert_curve(root, title, unit, "step", points)
        level, change = [[(one["context_length"], one[field]) for one in last] for field in ("nll", "delta_nll")]
        self.assert_curve(root, "Negative log-likelihood", "nats per token, by context; last evaluation", "context",
                          level)
        self.assert_curve(root, "Change from the shortest context", "nats per token, paired by document", "context",
                          change)
        waits = steps[-1]["ring"]["forward"]["hop_wait_seconds"]
        tips = [tip.text for tip in root.iter("title") if tip.text.startswith("forward, hop")]
        self.assertEqual([tip.split(":")[0] for tip in tips], [f"forward, hop {i}" for i in range(3)])
        for tip, wait in zip(tips, waits):
            self.assert_value(tip.split(": ")[1], wait)
        self.assertEqual(len(list(root.iter("figure"))), len(CURVES) + 4)  # and the history of evaluations

        start, facts = steps[13]["started"], dict(self.table(root, "What ran")[1:])
        self.assertEqual([bool(step.get("started")) for step in steps], [i in (0, 13) for i in range(26)])
        for name in ["build", "device", "host", "mesh", "layout", "ranks"]:
            self.assertEqual(facts[name], start[name])
        self.assertIn("llama, 2 layers of width ", facts["model"])
        events = self.table(root, "Events: 1")
        self.assertEqual(events[1][:2], ["14", f"resumed, mesh 1x2 on {start['host']}"])
        resumes = [path for path in root.iter("path") if path.get("class") == "resume"]
        self.assertEqual(len(resumes), 4)  # in each chart that has marks and reaches back far enough

        plan = self.json("plan.json")
        tiles = {tile.find("span").text: tile.find("b").text for tile in root.find(".//div[@class='tiles']")}
        self.assertEqual(tiles["steps; planned: 26"], "26")
        self.assert_value(tiles["tokens"], steps[-1]["tokens"])
        for name, field in [("seconds per step, median", "step_seconds"),
                            ("tokens per second, median", "tokens_per_second"), ("MFU, median", "mfu")]:
            planned = next(tile for tile in tiles if tile.startswith(name)).split("; planned: ")
            self.assert_value(planned[1], plan[field])
        peak = steps[13]["peak_bytes"][0]
        self.assertEqual(self.table(root, "Memory")[1:],
                         [[tag, bytes_text(peak[tag])] for tag in peak if tag != "total"] +
                         [["total", bytes_text(peak["total"])]])

        table = self.table(root, "Evaluation")
        self.assertEqual(len(table), 3)
        for row, one in zip(table[1:], last):
            fields = ["context_length", "perplexity", "nll", None, "bits_per_byte", "delta_nll", None]
            for cell, field in zip(row, fields):  # over two documents, an interval means nothing
                self.assert_value(cell, field and one.get(field))
        self.assertIn("512", [row[2] for row in self.table(root, "Config, where it is not the default")
                              if row[0] == "training.loss_chunk"])

    def test_two_runs_are_compared(self):
        self.make_run()
        (self.folder / "other").mkdir()
        config = (self.folder / "run/config.yaml").read_text().splitlines()
        (self.folder / "other/config.yaml").write_text(
            "\n".join("  lr: 0.125" if line.startswith("  lr:") else line for line in config) + "\n")
        (self.folder / "other/metrics.jsonl").write_text(
            "".join(json.dumps({**step, "loss": step["loss"] - 0.5}) + "\n" for step in self.steps))
        self.run_program("report", "run", "other")
        root = self.open("other/comparison.html")
        rows = self.table(root, "Compared")
        self.assertEqual(rows[0], ["", "run", "other", "change"])
        self.assertEqual((rows[1][0], rows[1][3]), ("loss, smoothed", "-0.5000"))
        same = next(row for row in rows if row[0] == "loss of step 26, the last that both have")
        self.assert_value(same[1], self.steps[-1]["loss"])
        self.assertEqual(same[3], "-0.5000")
        self.assertEqual([[row[0], row[2]] for row in self.table(root, "What differs in their configs")[1:]],
                         [["optimizer.lr", "0.125"]])
        self.assertEqual(len(list(root.find(".//figure").iter("polyline"))), 2)
        before = (self.folder / "run/metrics.jsonl").read_text()
        for output in ["run/metrics.jsonl", "other/config.yaml"]:  # neither run's files are replaced
            self.run_program("report", "run", "other", "--output", output, code=2)
        self.assertEqual((self.folder / "run/metrics.jsonl").read_text(), before)
        self.run_program("report", "run", "other", "--plan", "plan.json", code=2)

    def test_an_evaluation_is_shown_with_all_that_is_drawn_of_it(self):
        self.run_program("prepare", "--input", ROOT / "docs", "--output", "corpus.h5", "--validation-fraction", 0.4)
        self.run_program("train", "--output", "run", "--config", ROOT / "configs/tiny.yaml", "--mesh", "1x1", "--set",
                         "data.train=corpus.h5", "--set", "training.steps=2", "--set", "training.seq_len=64", "--set",
                         "checkpoint.interval=1")
        evaluate = ["--checkpoint", "run", "--data", "corpus.h5", "--context-lengths", "1000,1200", "--target-tokens",
                    16, "--target-blocks", 2, "--mesh", "1x2", "--output", "results.json"]
        self.run_program("evaluate", *evaluate, "--by-position", "--longppl", "--trunc-len", 400, "--sliding-window",
                         300, "--alpha", 0.001, "--beta", -9, "--save-path", "keys.json", "--against", "run", "--set",
                         "model.rope_theta=2000", "--tasks", "all", "--task-samples", 1, "--task-depths", 3)
        self.run_program("report", "run", "--evaluation", "results.json")
        root, results = self.open("run/report.html"), self.json("results.json")
        for row, one in zip(self.table(root, "Evaluated")[1:], results["results"], strict=True):
            self.assert_value(row[2], one["nll"])
        tips = [tip.text for tip in root.iter("title")]
        shown = [number(tip.split(": ")[1].split(",")[0]) for tip in tips if ", position " in tip]
        for one in itertools.chain(*[results["against"]["results"], results["results"]]):
            for field in ["nll", "difference_nll", "kl"]:
                for bucket in one["by_position"]:
                    value = bucket.get(field)
                    if value is not None:
                        self.assertTrue(any(abs(one - value) <= 0.00051 * abs(value) for one in shown), (field, value))
        shown = [[cell.text for cell in row] for row in root.iter("tr")]
        for task in results["tasks"]["results"]:
            for length in {cell["context_length"] for cell in task["cells"]}:
                self.assertIn([str(length)] + [f"{100 * cell['accuracy']:.0f}" for cell in task["cells"]
                                               if cell["context_length"] == length], shown)
        # Doing it again replaces what this program wrote, and the key tokens are used by the next evaluation.
        self.run_program("evaluate", *evaluate, "--longppl", "--key-tokens", "keys.json")
        self.assertIs(self.json("results.json")["longppl"]["own_contrast"], False)
        self.run_program("evaluate", *evaluate, "--longppl", "--save-path", "corpus.h5", code=2)  # an input
        self.assertIn("does not hold results of evaluate --output",
                      self.run_program("report", "run", "--evaluation", "keys.json", code=2))

    def browse(self, page, *arguments):
        result = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir=browser",
             "--disable-background-networking", *arguments, "--dump-dom", f"file://{self.folder / page}"],
            cwd=self.folder, env={**os.environ, "HOME": str(self.folder)}, timeout=120, text=True, capture_output=True,
            check=True)
        self.assertIn("</html>", result.stdout)
        return result.stdout

    def asked(self, page):
        """Returns the addresses that a page requests from a browser, from the browser's own log."""
        self.browse(page, "--log-net-log=net.json")
        log = self.json("net.json")
        request = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
        asked = [event["params"] for event in log["events"] if event["type"] == request and "params" in event]
        # Requests without an origin are the browser's own updates.
        return [one["url"] for one in asked if "url" in one and one.get("initiator") != "not an origin"]

    def cut_off(self, page, width):
        """Returns what a script finds on a page with this many pixels: elements beyond the screen."""
        script = ("<script>const out=[];for(const e of document.querySelectorAll('body *')){const r="
                  "e.getBoundingClientRect();if(r.width>0&&(r.right>innerWidth+1||r.left<-1)&&!e.closest('svg'))"
                  "out.push(e.tagName+': '+e.textContent.slice(0,40));}"
                  "document.title='FOUND ['+out.join('|')+']';</script>")
        text = (self.folder / page).read_text().replace("</body>", script + "</body>")
        (self.folder / "measured.html").write_text(text)
        dom = self.browse("measured.html", f"--window-size={width},900")
        return dom.split("FOUND ")[1].split("</title>")[0]

    @unittest.skipUnless(CHROMIUM, "there is no Chromium to open the page with")
    def test_a_browser_requests_nothing_and_shows_all_on_any_screen(self):
        (self.folder / "bad.html").write_text("<html><body><img src=\"http://127.0.0.1:9/x.png\">"
                                              "<p style='width:3000px'>wide</p></body></html>")
        self.assertEqual(self.asked("bad.html"), ["http://127.0.0.1:9/x.png"])
        self.assertIn("P: wide", self.cut_off("bad.html", 800))
        self.make_run()
        self.assertEqual(self.asked("run/report.html"), [])
        for width in [1280, 800, 500, 360]:
            self.assertEqual(self.cut_off("run/report.html", width), "[]", width)


if __name__ == "__main__":
    unittest.main()
