#!/usr/bin/env python3
"""Uses the library like other projects: installed, moved to another folder, and linked by separate projects; and tests
the single program `ringtrain` that starts the others.

RINGTRAIN_BIN is the folder bin of a build in which everything is built; RINGTRAIN_MPI says whether it has MPI. --long
also includes the checkout with FetchContent, which compiles the library again."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["RINGTRAIN_BIN"]).parent
MPI = os.environ.get("RINGTRAIN_MPI", "TRUE").upper() == "TRUE" and shutil.which("mpirun") is not None
TEMPORARY = tempfile.TemporaryDirectory(prefix="ringtrain-run-")  # mpiruns that share one may interfere with each other
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def run(*command, cwd=None, **environment):
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": TEMPORARY.name,
                 **environment}
    return subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **variables},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=1500, check=False)


class Library(unittest.TestCase):
    """The installed files, in a folder other than that of the installation."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="ringtrain-library-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        first = cls.folder / "first"
        result = run("cmake", "--install", BUILD, "--prefix", first)
        if result.returncode != 0:
            raise AssertionError(result.stdout)
        cls.prefix = cls.folder / "moved here"
        first.rename(cls.prefix)

    def expect(self, result, code=0, text=""):
        self.assertEqual(result.returncode, code, result.stdout)
        self.assertIn(text, result.stdout)
        return result.stdout

    def configure(self, source, name, *arguments):
        build = self.folder / name
        return build, run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                          "-DCMAKE_BUILD_TYPE=Release", *arguments)

    def project(self, name, text):
        source = self.folder / f"{name} source"
        source.mkdir()
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\n" + text)
        return self.configure(source, name)[1]


class Packages(Library):
    def build_example(self, name):
        build, configured = self.configure(ROOT / "examples" / name, name)
        self.expect(configured)
        built = self.expect(run("cmake", "--build", build))
        self.assertNotIn("warning:", built)
        return build / f"{name}_example"

    def test_the_ring(self):
        example = self.build_example("ring")
        printed = self.expect(run(example))
        self.assertEqual(sorted(printed.splitlines()), [f"rank {rank} of 4: as the naive sum" for rank in range(4)])

    def test_the_trainer_inside_a_program(self):
        example = self.build_example("train")
        config, folder = ROOT / "examples/train/counting.yaml", self.folder / "run"
        printed = self.expect(run(example, config, folder), text="stopped by its program after step ")
        steps = [int(step) for step in re.findall(r"^step (\d+): perplexity", printed, re.M)]
        self.assertEqual(steps, list(range(20, 20 * len(steps) + 1, 20)))
        stopped = int(re.search(r"stopped by its program after step (\d+) of 400", printed)[1])
        self.assertIn(f"{folder}/checkpoints/step-{stopped:08d}\n", printed)
        again = self.expect(run(example, config, folder), text=f"resuming from {folder}/checkpoints/step-{stopped:08d}")
        self.assertGreater(int(re.search(r"stopped by its program after step (\d+) of 400", again)[1]), stopped)
        self.expect(run(self.prefix / "bin/ringtrain", "report", folder, "--output", self.folder / "report.html"))

    def test_a_model_of_ones_own(self):
        example, tokens = self.build_example("model"), self.folder / "tokens.h5"
        self.expect(run(self.prefix / "bin/ringtrain", "prepare", "--synthetic", "recall", "--documents", "60", "--length",
                        "256", "--pairs", "4", "--validation-fraction", "0.2", "--output", tokens))

        def trained(folder, data, sequence, *settings, before=()):
            return self.expect(run(*before, example, ROOT / "examples/model/gated.yaml", self.folder / folder, tokens,
                                   f"data.train={tokens}", f"mesh.data={data}", f"mesh.sequence={sequence}", *settings))

        def losses(folder):
            lines = (self.folder / folder / "metrics.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            return [row["loss"] for row in rows if row["kind"] == "train"]

        single = trained("single", 1, 1)
        self.assertLess(losses("single")[-1], 0.9 * losses("single")[0])
        trained("gated", 2, 2, "training.steps=10")
        resumed = trained("gated", 1, 3)
        self.assertIn("resuming from", resumed)
        self.assertEqual(len(losses("gated")), 20)
        for found, wanted in zip(losses("gated"), losses("single")):
            self.assertAlmostEqual(found, wanted, delta=2e-5 * wanted)
        perplexities = [float(re.search(r"^perplexity (\S+)$", printed, re.M)[1]) for printed in (single, resumed)]
        self.assertAlmostEqual(perplexities[0], perplexities[1], delta=1e-3 * perplexities[0])
        refused = run(self.prefix / "bin/ringtrain", "evaluate", "--checkpoint", self.folder / "gated", "--data", tokens,
                      "--context-lengths", "16")
        self.expect(refused, 4, 'holds the custom model "gated", but this program reads')
        if MPI:
            trained("threads", 2, 2)
            trained("processes", 2, 2, before=("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4"))
            self.assertEqual(losses("processes"), losses("threads"))
        self.expect(run(example), 2, "usage: model_example CONFIG FOLDER TOKENS")
        gradients = self.expect(run(example.parent / "gradients_example", ROOT / "examples/model/gated.yaml", tokens))
        self.assertIn("model.gate_up.weight ", gradients)

    def test_a_wrong_call_names_the_users_own_line(self):
        source = self.folder / "wrong call source"
        source.mkdir()
        shutil.copy(ROOT / "examples/ring/CMakeLists.txt", source)
        lines = ["#include <ringtrain/ring.h>", "#include <cstdio>", "using namespace ringtrain;", "int main() try {",
                 "  ThreadPool pool(1);", "  Stream stream(pool);", "  std::vector<float> y(8);",
                 "  const std::vector<float> x(12);",
                 "  linear_forward(stream, host_view(y.data(), {2, 4}), host_view(x.data(), {2, 3}), "
                 "host_view(x.data(), {3, 4}), {});",
                 "} catch (const Error& error) {", '  std::fprintf(stderr, "%s\\n", error.what());',
                 "  return static_cast<int>(error.code());", "}"]
        (source / "main.cpp").write_text("\n".join(lines) + "\n")
        build, configured = self.configure(source, "wrong_call")
        self.expect(configured)
        self.assertNotIn("warning:", self.expect(run("cmake", "--build", build)))
        self.expect(run(build / "ring_example"), 2,
                    f"{source}/main.cpp:9: w has the shape [3, 4], but must have [O = 4, I = 3]\n")

    def test_a_constant_view_is_not_written(self):
        text = ("#include <ringtrain/ring.h>\nvoid f(ringtrain::Stream& stream, const float* x) {\n"
                "  fill(stream, ringtrain::host_view(x, {2}), 0);\n}\n")
        result = run("c++", "-std=c++20", "-fsyntax-only", f"-I{self.prefix}/include", "-x", "c++",
                     self.written("constant.cpp", text))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ConstTensorView", result.stdout)

    def written(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def test_nothing_names_the_checkout_or_the_first_folder(self):
        found = 0
        for path in self.prefix.rglob("*"):
            if path.suffix in (".cmake", ".pc", ".h"):
                found += 1
                text = path.read_text()
                for folder in (ROOT, self.folder):
                    self.assertNotIn(f"{folder}/", text, path)
        self.assertGreater(found, 100)

    def test_flags_of_our_own_stay_with_us(self):
        for path in self.prefix.rglob("*.cmake"):
            self.assertIsNone(re.search(r"-W(all|error|extra|shadow)|-march|-ffp-contract|-fno-math", path.read_text()),
                              path)

    def test_a_c_compiler_is_asked_for(self):
        result = self.project("no_c", "project(x LANGUAGES CXX)\nfind_package(ringtrain CONFIG REQUIRED)\n")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("project(NAME LANGUAGES C CXX)", " ".join(result.stdout.split()))

    def test_components(self):
        one = self.project("one", "project(x LANGUAGES C CXX)\nfind_package(ringtrain CONFIG REQUIRED COMPONENTS ring)\n"
                           'if(TARGET ringtrain::train OR NOT TARGET ringtrain::ring)\n  message(FATAL_ERROR "no")\nendif()')
        self.expect(one)
        whole = self.project("whole", "project(x LANGUAGES C CXX)\nfind_package(ringtrain CONFIG REQUIRED)\n"
                             'if(NOT TARGET ringtrain::train)\n  message(FATAL_ERROR "no")\nendif()')
        self.expect(whole)
        wrong = self.project("wrong", "project(x LANGUAGES C CXX)\n"
                             "find_package(ringtrain CONFIG REQUIRED COMPONENTS pipeline)")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("there is no component pipeline of ringtrain: it has ring, data, layers, train",
                      " ".join(wrong.stdout.split()))

    def test_another_minor_version_is_refused(self):
        result = self.project("former", "project(x LANGUAGES C CXX)\nfind_package(ringtrain 0.1 CONFIG REQUIRED)\n")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn('compatible with requested version "0.1"', " ".join(result.stdout.split()))


class Headers(Library):
    def compile(self, text, *flags):
        source = self.folder / "one.cpp"
        source.write_text(text)
        return run("c++", "-std=c++20", "-fsyntax-only", *flags, f"-I{self.prefix}/include", source)

    def test_umbrellas_are_clean_under_a_users_warnings(self):
        for header in ("ring", "layers", "data", "train"):
            with self.subTest(header):
                self.expect(self.compile(f"#include <ringtrain/{header}.h>\n", *WARNINGS))

    def test_folders_of_a_users_own_do_not_come_in_between(self):
        own = self.folder / "own"
        for name in ("framework/tensor.h", "data/batch.h", "train/trainer.h"):
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text('#error "another project\'s file"\n')
        self.expect(self.compile("#include <ringtrain/train.h>\n", f"-I{own}"))

    def test_fast_math_is_refused(self):
        result = self.compile("#include <ringtrain/ring.h>\n", "-ffast-math")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("do not compile or link ringtrain with -ffast-math", result.stdout)

    def test_an_older_language_is_refused(self):
        result = self.compile("#include <ringtrain/ring.h>\n", "-std=c++17")
        self.assertIn("ringtrain needs C++20", result.stdout)

    @unittest.skipUnless(shutil.which("pkg-config"), "there is no pkg-config")
    def test_pkg_config(self):
        source, program = ROOT / "examples/ring/main.cpp", self.folder / "by pkg-config"
        found = next(self.prefix.rglob("ringtrain.pc")).parent
        flags = self.expect(run("pkg-config", "--cflags", "--libs", "ringtrain", PKG_CONFIG_PATH=str(found)))
        words = subprocess.run(["xargs", "-n1"], input=flags, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.expect(run("c++", source, "-o", program, *words.splitlines()))
        self.expect(run(program), text="as the naive sum")


class Front(Library):
    def front(self, *arguments, cwd=None):
        return run(self.prefix / "bin" / "ringtrain", *arguments, cwd=cwd)

    def test_bin_has_one_name(self):
        self.assertEqual([path.name for path in (self.prefix / "bin").iterdir()], ["ringtrain"])

    def test_every_program_has_its_command(self):
        helped = self.expect(self.front("--help"))
        commands = re.findall(r"^  (\w+) ", helped, re.M)
        self.assertEqual(sorted(commands), sorted(path.name for path in (self.prefix / "libexec/ringtrain").iterdir()))
        for command in commands:
            with self.subTest(command):
                self.expect(self.front(command, "--help"))

    def test_a_misspelt_command_is_named(self):
        self.expect(self.front("trian", "--config", "x"), 2, "there is no command trian; did you mean train?")
        self.expect(self.front(), 2, "no command is given")
        self.expect(self.front("--version"), 0, "ringtrain 0.")

    def test_a_command_is_the_program(self):
        self.expect(self.front("train", "--confg", "x"), 2, "train: ")
        work = self.folder / "work"
        work.mkdir()
        self.expect(self.front("prepare", "--synthetic", "recall", "--documents", "40", "--length", "256", "--pairs",
                               "4", "--output", "tokens.h5", cwd=work))
        config = (ROOT / "configs/tiny.yaml").read_text()
        (work / "tiny.yaml").write_text(config)
        self.expect(self.front("train", "--config", "tiny.yaml", "--set", "data.train=tokens.h5", "--set",
                               "training.seq_len=64", "--set", "training.steps=2", cwd=work))
        self.expect(self.front("plan", "--config", "tiny.yaml", "--set", "data.train=tokens.h5", "--hardware", "h100",
                               cwd=work))

    def test_a_build_has_it_too(self):
        self.expect(run(BUILD / "bin" / "ringtrain", "train", "--version"), 0, "ringtrain 0.")

    def test_completion(self):
        file = self.prefix / "share/bash-completion/completions/ringtrain"
        for words, offered in ((["ringtrain", "eva"], "evaluate"), (["ringtrain", "train", "--dry"], "--dry-run"),
                               (["ringtrain", "train", "--set", "mesh.layout", "=", "z"], "zigzag")):
            line = " ".join(f"'{word}'" for word in words)
            script = (f"PATH='{self.prefix}/bin':$PATH; source '{file}'; COMP_WORDS=({line}); "
                      f"COMP_CWORD={len(words) - 1}; _ringtrain_front ringtrain && printf '%s\\n' \"${{COMPREPLY[@]}}\"")
            self.assertEqual(self.expect(run("bash", "-c", script)).split(), [offered])

    @unittest.skipUnless(MPI, "the build or the machine has no MPI")
    def test_launch(self):
        self.expect(self.front("launch", "-n", "2", "--", "train", "--version"), 0, "ringtrain 0.")


class TakenIn(unittest.TestCase):
    """A project that compiles ringtrain as a part of itself."""

    @unittest.skipUnless("--long" in sys.argv, "takes minutes: --long")
    def test_fetch_content(self):
        with tempfile.TemporaryDirectory(prefix="ringtrain-fetch-") as temporary:
            build = pathlib.Path(temporary) / "build"
            launcher = shutil.which("ccache") or ""
            result = run("cmake", "-S", ROOT / "examples/fetch_content", "-B", build, "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                         f"-DFETCHCONTENT_SOURCE_DIR_RINGTRAIN={ROOT}")
            self.assertEqual(result.returncode, 0, result.stdout)
            result = run("cmake", "--build", build, "--target", "ring_example")
            self.assertEqual(result.returncode, 0, result.stdout)
            result = run(build / "ring_example")
            self.assertIn("as the naive sum", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[argument for argument in sys.argv if argument != "--long"])
