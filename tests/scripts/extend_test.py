#!/usr/bin/env python3
"""scripts/extend, killed and called again: whatever it was doing, it goes on, takes nothing half-written for done, and
what comes of it has the bits of an undisturbed call.

A tiny model of bytes goes from 32 to 64 tokens. Each attempt is killed, with all its processes, at the first command at
which none was killed before: before the command, after it, or somewhere in it. Commands are the programs, and the mv
by which the script itself publishes. Measuring the machine is a stand-in: it would take a minute.

RINGTRAIN_BIN names the folder of the programs."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"]).resolve()
PROGRAMS = ("train", "evaluate", "prepare", "export", "plan", "report")

# Stands before a program, or mv: kills the script's process group at the first call that no attempt was killed at yet.
WRAPPER = textwrap.dedent("""\
    #!/bin/bash
    real=@REAL@
    if [[ "@NAME@ $*" == *"plan --measure"* ]]; then
      stand_in() { cat "$HARDWARE" >"${@: -1}.new" && /bin/mv "${@: -1}.new" "${@: -1}"; }
      real=stand_in
    fi
    key="@NAME@ $*"
    if [ -z "${MODE-}" ] || grep -qxF -- "$key" "$KILLED"; then
      if [ "$real" = stand_in ]; then stand_in "$@"; exit; fi
      exec "$real" "$@"
    fi
    printf '%s\\n' "$key" >>"$KILLED"
    case $MODE in
      after) "$real" "$@" ;;
      during)
        "$real" "$@" &
        sleep "$MOMENT"
        ;;
    esac
    kill -KILL 0
    """)

BASE = """
model: {{hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 24,
        max_position_embeddings: 32}}
data: {{train: {data}, packing: concat}}
mesh: {{threads_per_rank: 1}}
training: {{seq_len: 32, global_batch_size: 1, steps: 1}}
optimizer: {{lr: 1.0e-3}}
"""


def write_text(path, seed, documents):
    draw = random.Random(seed)
    path.mkdir()
    for document in range(documents):
        words = ("".join(draw.choices("abcdefgh", k=draw.randrange(1, 7))) for _ in range(60))
        (path / f"{document:02}.txt").write_text(" ".join(words), encoding="utf-8")


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.checkout = cls.folder / "checkout"
        (cls.checkout / "build/release/bin").mkdir(parents=True)
        (cls.checkout / "tools").mkdir()
        shutil.copytree(ROOT / "scripts", cls.checkout / "scripts")
        for path, name, real in [(f"build/release/bin/{name}", name, BIN / name) for name in PROGRAMS] + [
                ("tools/mv", "mv", shutil.which("mv"))]:
            wrapper = cls.checkout / path
            wrapper.write_text(WRAPPER.replace("@NAME@", name).replace("@REAL@", str(real)), encoding="utf-8")
            wrapper.chmod(0o755)
        write_text(cls.checkout / "long", 1, 30)
        write_text(cls.checkout / "book", 2, 24)
        write_text(cls.checkout / "short", 3, 10)
        cls.make_model()
        cls.extend("undisturbed")

    @classmethod
    def make_model(cls):
        def run(program, *arguments):
            subprocess.run([BIN / program, *arguments], cwd=cls.checkout, check=True, capture_output=True)
        run("prepare", "--input", "long", "--output", "base.h5", "--validation-fraction", "0")
        (cls.checkout / "base.yaml").write_text(BASE.format(data="base.h5"), encoding="utf-8")
        run("train", "--config", "base.yaml", "--output", "base")
        run("export", "--checkpoint", "base", "--output", "model")

    @classmethod
    def extend(cls, output, **environment):
        """Returns the exit code and what was said."""
        killed = cls.checkout / f"{output}.killed"
        killed.touch()
        # A process group of its own, which the wrapper kills.
        done = subprocess.run(
            ["scripts/extend", "model", "long", "--to", "64", "--held-out", "book", "--short", "short", "--steps", "2",
             "--half-steps", "1", "--lr", "1e-3", "--needles", "0", "--output", output],
            cwd=cls.checkout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=120, check=False, start_new_session=True,
            env=os.environ | environment | {"RINGTRAIN_PREBUILT": "1", "KILLED": str(killed),
                                            "HARDWARE": str(ROOT / "configs/hardware/cpu.yaml"),
                                            "PATH": f"{cls.checkout}/tools:{os.environ['PATH']}"})
        if "MODE" not in environment and done.returncode != 0:
            raise AssertionError(done.stdout)
        return done.returncode, done.stdout

    def results(self, output):
        """Returns what is there of what an extension gives to users: the content of each file by its name, without
        times, and without the name of the folder."""
        found = {}
        for path in sorted((self.checkout / output).rglob("*")):
            name = str(path.relative_to(self.checkout / output))
            wanted = (r"model/.*|(before|scaled|after)(-short)?\.(json|jsonl|txt)|"
                      r"(long|held-out|short)\.h5(\.manifest\.json)?|verdicts\.txt|index\.html|config\.yaml|machine\.yaml")
            if not path.is_file() or not re.fullmatch(wanted, name):
                continue
            content = path.read_bytes()
            if path.suffix in (".json", ".jsonl", ".txt", ".html", ".yaml"):
                text = content.decode().replace(output + "/", "OUTPUT/").replace(f'"{output}"', '"OUTPUT"')
                text = re.sub(r"Taken: .*</p>", "", text)
                content = re.sub(r'"?[a-z_]*(seconds|per_second|created|made)"?: .*', "", text).encode()
            found[name] = content
        return found

    def kill_everywhere(self, mode):
        whole = self.results("undisturbed")
        draw = random.Random(mode)
        for attempt in range(120):
            moment = f"{draw.uniform(0, 0.25):.3f}"
            code, said = self.extend(mode, MODE=mode, MOMENT=moment)
            killed = (self.checkout / f"{mode}.killed").read_text(encoding="utf-8").splitlines()
            if code == 0:
                break
            self.assertEqual(code, -signal.SIGKILL, f"attempt {attempt}, after {killed}: {said}")
            found = self.results(mode)
            for name in ("before.txt", "scaled.txt", "after.txt", "model/model.safetensors", "index.html",
                         "long.h5"):
                if name in found:
                    self.assertEqual(found[name], whole[name], f"{name}, {mode} {killed[-1]}")
        else:
            self.fail(f"120 attempts do not suffice: {killed}")
        self.assertEqual({line.split()[0] for line in killed}, {*PROGRAMS, "mv"})
        self.assertGreater(len(killed), 18, killed)
        found = self.results(mode)
        self.assertEqual(found.keys(), whole.keys())
        for name, content in found.items():
            self.assertEqual(content, whole[name], name)
        print(f"{mode}: {len(killed)} kills", flush=True)

    def test_before_each_command(self):
        self.kill_everywhere("before")

    def test_after_each_command(self):
        self.kill_everywhere("after")

    def test_within_each_command(self):
        self.kill_everywhere("during")

    def test_a_token_file_that_is_not_whole_is_made_again(self):
        for _ in range(2):  # after the mark, and after prepare
            self.extend("cut", MODE="after", MOMENT="0")
        for gone in (("long.h5", "long.h5.tokenizer"), ("long.h5.tokenizer",)):  # as a kill leaves it: the manifest is first
            for name in gone:
                path = self.checkout / "cut" / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.assertTrue((self.checkout / "cut/long.h5.manifest.json").exists())
            self.extend("cut")
            self.assertEqual(self.results("cut"), self.results("undisturbed"))
            self.assertTrue((self.checkout / "cut/long.h5.tokenizer").is_dir())

    def test_what_is_done_is_not_done_again(self):
        before = {path: path.stat().st_mtime_ns for path in (self.checkout / "undisturbed").rglob("*.safetensors")}
        before |= {path: path.stat().st_mtime_ns for path in (self.checkout / "undisturbed").glob("*.jsonl")}
        self.assertGreater(len(before), 3)
        self.extend("undisturbed")
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in before})


if __name__ == "__main__":
    unittest.main()
