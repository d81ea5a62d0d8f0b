#!/usr/bin/env python3
"""Random tokenizers and difficult texts: compares ids with Hugging Face's tokenizers and SentencePiece.

    fuzz_test.py [--seconds N] [--seed N] [--golden FILE]

A file that the probe refuses with a message counts as refused, and any other difference is a failure, which is
minimized and printed. --golden writes the findings, with the reference's ids, in the form of
tests/tokenizers/fuzzed.json. RINGTRAIN_BIN names the folder of the programs. The packages are installed under build/ at
the first run; if they are unavailable, the test is skipped with a message (exit 77).
"""
import argparse
import collections
import copy
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "extras" / "gguf")]
PACKAGES = ["tokenizers==0.23.3", "sentencepiece==0.2.3", "protobuf==7.36.2", "gguf==0.19.0"]

import drawing  # noqa: E402  (the path above comes first)
import environment  # noqa: E402
import pieces_file  # noqa: E402

environment.use("tokenizer-references", PACKAGES)

import sentencepiece  # noqa: E402
from sentencepiece import sentencepiece_model_pb2  # noqa: E402
import tokenizers  # noqa: E402

TEXTS = 40  # for each tokenizer
PATIENCE = 20  # seconds for a case
SHORTENING = 60  # seconds to minimize a finding


class Crash(Exception):
    """The probe died, or ended without a message."""


class Probe:
    """Ringtrain's side: one process, reused while it lives."""

    def __init__(self, folder):
        self.folder = folder
        self.program = pathlib.Path(os.environ["RINGTRAIN_BIN"]) / "tokenizer_probe"
        self.process = None

    def ids(self, path, texts, parse):
        """Returns the ids of each text, None for one that is refused; or the message that refuses the tokenizer."""
        if self.process is None:
            self.process = subprocess.Popen([self.program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE)
        names = [self.folder / "texts", self.folder / "ids"]
        with open(names[0], "wb") as file:
            for text in texts:
                file.write(struct.pack("<I", len(text)) + text)
        line = "\t".join([str(path), *map(str, names), "parse" if parse else "text"]) + "\n"
        answer = ""
        try:
            self.process.stdin.write(line.encode("utf-8"))
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], PATIENCE / 2)[0]:
                answer = "no answer"
            else:
                answer = self.process.stdout.readline().decode("utf-8", errors="replace").rstrip("\n")
        except BrokenPipeError:
            pass
        if answer != "ok":
            code, _, sentence = answer.partition(" ")
            if code == "3":
                return sentence
            self.process.kill()
            told = self.process.communicate()[1].decode("utf-8", errors="replace")
            self.process = None
            raise Crash(f"{answer} {told.strip()[-300:]}")
        data, at, result = names[1].read_bytes(), 0, []
        while at < len(data):
            size = struct.unpack_from("<i", data, at)[0]
            at += 4
            result.append(None if size < 0 else list(struct.unpack_from(f"<{size // 4}i", data, at)))
            at += max(size, 0)
        return result


    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def quiet(call):
    """Returns the result of a call, or None if it raises or panics."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of Rust is not an Exception
        return None


class Json:
    """A tokenizer.json and Hugging Face's tokenizers."""
    kind = "tokenizer.json"

    def __init__(self, content):
        self.content = content

    def save(self, folder):
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(self.content, ensure_ascii=False), encoding="utf-8")
        return path

    def reference(self, parse):
        tokenizer = quiet(lambda: tokenizers.Tokenizer.from_str(json.dumps(self.content)))
        if tokenizer is None:
            return None
        tokenizer.encode_special_tokens = not parse
        return lambda text: quiet(lambda: tokenizer.encode(text, add_special_tokens=False).ids)

    def known(self):
        model = self.content["model"]
        return [token["content"] for token in self.content["added_tokens"]] * 3 + list(model["vocab"])[-8:]

    def smaller(self):
        for key in ("normalizer", "post_processor", "decoder"):
            if self.content[key] is not None:
                yield Json({**self.content, key: None})
        for number in range(len(self.content["added_tokens"])):
            changed = copy.deepcopy(self.content)
            del changed["added_tokens"][number]
            for token in changed["added_tokens"][number:]:
                token["id"] -= token["id"] >= len(changed["model"]["vocab"])
            yield Json(changed)
        for number, token in enumerate(self.content["added_tokens"]):
            for flag in ("single_word", "lstrip", "rstrip", "normalized", "special"):
                if token[flag]:
                    changed = copy.deepcopy(self.content)
                    changed["added_tokens"][number][flag] = False
                    yield Json(changed)
        for list_name, part in (("pretokenizers", "pre_tokenizer"), ("normalizers", "normalizer")):
            for number in range(len((self.content[part] or {}).get(list_name, []))):
                changed = copy.deepcopy(self.content)
                del changed[part][list_name][number]
                yield Json(changed)
        for number in reversed(range(len(self.content["model"]["merges"]))):
            changed = copy.deepcopy(self.content)
            del changed["model"]["merges"][number]
            yield Json(changed)
        added = {token["content"] for token in self.content["added_tokens"]}
        model = self.content["model"]
        parts = {part for pair in model["merges"] for one in [pair.split(" ") if isinstance(pair, str) else pair]
                 for part in [*one, "".join(one)]}
        last = next(reversed(model["vocab"]))
        if last not in added | parts | {model["unk_token"]} and last not in drawing.BYTE_CHARACTERS:
            changed = copy.deepcopy(self.content)
            del changed["model"]["vocab"][last]
            for token in changed["added_tokens"]:
                token["id"] -= token["id"] >= len(changed["model"]["vocab"])
            yield Json(changed)

    def golden(self):
        content = {key: value for key, value in self.content.items() if value}
        content["model"] = {key: value for key, value in self.content["model"].items() if value}
        content["model"]["vocab"] = with_names(list(self.content["model"]["vocab"]), lambda token: token)
        content["model"].setdefault("merges", [])
        return {"tokenizer": content}


class Pieces:
    """SentencePiece's pieces in a GGUF file, converted, and SentencePiece."""
    kind = "GGUF"

    def __init__(self, pieces, settings):
        self.pieces, self.settings = pieces, settings

    def proto(self):
        model = sentencepiece_model_pb2.ModelProto()
        for text, score, kind in self.pieces:
            model.pieces.add(piece=text, score=score, type=kind)
        model.trainer_spec.model_type = 2
        model.trainer_spec.vocab_size = len(self.pieces)
        model.trainer_spec.byte_fallback = self.settings["byte_fallback"]
        model.normalizer_spec.name = "identity"
        model.normalizer_spec.add_dummy_prefix = self.settings["add_dummy_prefix"]
        model.normalizer_spec.remove_extra_whitespaces = False
        return model

    def save(self, folder):
        path, output = folder / "tokenizer.gguf", folder / "converted"
        pieces_file.write(self.pieces, path, add_space_prefix=self.settings["add_dummy_prefix"])
        shutil.rmtree(output, ignore_errors=True)
        try:
            pieces_file.convert(path, output)
        except subprocess.CalledProcessError as error:
            raise Crash(f"ringtrain_gguf: {error.returncode} {error.stderr}") from error
        return output

    def reference(self, parse):
        if parse:
            return None  # SentencePiece never finds a control piece in a text
        model = quiet(lambda: sentencepiece.SentencePieceProcessor(model_proto=self.proto().SerializeToString()))
        return model and (lambda text: quiet(lambda: model.encode(text)))

    def known(self):
        return [text for text, _, kind in self.pieces if kind == drawing.USER_DEFINED] * 3 + [
            text for text, _, kind in self.pieces if kind == drawing.NORMAL][:12]

    def smaller(self):
        for number, piece in enumerate(self.pieces):
            if piece[2] in (drawing.NORMAL, drawing.USER_DEFINED, drawing.CONTROL):
                yield Pieces(self.pieces[:number] + self.pieces[number + 1:], self.settings)
        for key, value in self.settings.items():
            if value:
                rest = [piece for piece in self.pieces if key != "byte_fallback" or piece[2] != drawing.BYTE]
                yield Pieces(rest, {**self.settings, key: False})

    def golden(self):
        return {"pieces": with_names(self.pieces, lambda piece: piece[0]), **self.settings}


def with_names(items, text_of):
    """Returns a list with the 256 byte characters, or the 256 names of bytes, as one item if all are there."""
    texts = [text_of(item) for item in items]
    for name, run in (("byte characters", drawing.BYTE_CHARACTERS), ("byte names", drawing.HEXADECIMAL)):
        if run[0] in texts:
            at = texts.index(run[0])
            if texts[at:at + 256] == run:
                return items[:at] + [{"run": name}] + items[at + 256:]
    return items


def expected_of(case, texts, parse):
    """Returns the reference's ids of each text, None if it fails; None if it refuses the tokenizer."""
    reference = case.reference(parse)
    return reference and [reference(text.decode("utf-8", errors="replace")) for text in texts]


def differs(case, texts, parse, probe, folder):
    """Returns the first text whose ids differ, or the message of a crash; None if there is none."""
    expected = expected_of(case, texts, parse)
    if expected is None:
        return None
    try:
        ids = probe.ids(case.save(folder), texts, parse)
    except Crash as crash:
        return f"crash: {crash}"
    if isinstance(ids, str):
        return None
    return next((text for text, ours, right in zip(texts, ids, expected, strict=True)
                 if None not in (ours, right) and ours != right), None)


def shortened(case, text, parse, probe, folder):
    """Returns the smallest found case and text that still differ."""
    end = time.monotonic() + SHORTENING
    while time.monotonic() < end:
        pieces = [text.decode("utf-8", errors="surrogateescape")]
        shorter = [(pieces[0][:i] + pieces[0][j:]).encode("utf-8", errors="surrogateescape")
                   for size in (16, 8, 4, 2,
                                1) for i in range(len(pieces[0])) for j in [i + size] if j <= len(pieces[0])]
        found = next((one for one in shorter if differs(case, [one], parse, probe, folder) == one), None)
        if found is not None:
            text = found
            continue
        smaller = next((one for one in case.smaller() if differs(one, [text], parse, probe, folder) == text), None)
        if smaller is None:
            break
        case = smaller
    return case, text


def trained_models():
    """Returns small models made by SentencePiece's trainer, with user-defined symbols, as pieces."""
    result = []
    corpus = [line for path in ("README.md", "docs/usage.md") for line in (HERE.parents[1] / path).read_text(
        encoding="utf-8").split("\n")] + ["Việt Nam Straße 中文文本 日本語", "    if (x) {", "\t\treturn 1234;"] * 20
    for number, symbols in enumerate((["\n", "    "], ["<x>", "<x", "  ", "\u2581\u2581"], ["1", "2", "\t"], [])):
        with tempfile.TemporaryDirectory() as name:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(corpus), model_prefix=f"{name}/m", model_type="bpe",
                vocab_size=420 + 30 * number,
                byte_fallback=number % 2 == 0, normalization_rule_name="identity", remove_extra_whitespaces=False,
                character_coverage=0.98, allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2,
                user_defined_symbols=symbols, hard_vocab_limit=False)
            proto = sentencepiece_model_pb2.ModelProto()
            proto.ParseFromString(pathlib.Path(f"{name}/m.model").read_bytes())
        result.append(([[piece.piece, piece.score, piece.type] for piece in proto.pieces], number % 2 == 0))
    return result


def draw_case(draw, trained):
    kind = draw.random()
    if kind < 0.4:
        return Json(drawing.byte_level(draw))
    if kind < 0.7:
        return Json(drawing.characters(draw))
    pieces, settings = drawing.pieces(draw, trained)
    settings["byte_fallback"] = any(piece[2] == drawing.BYTE for piece in pieces)  # GGUF files do not contain it
    return Pieces(pieces, settings)


def draw_texts(draw, case):
    known = case.known()
    texts = [drawing.text(draw, known).encode("utf-8") for _ in range(TEXTS)]
    if case.kind != "tokenizer.json" or draw.random() < 0.5:
        texts[0] += bytes(draw.choices([0x80, 0xC3, 0xE2, 0x82, 0xF0, 0x9F, 0xFF, 0x61], k=3))
    return texts


def reason_of(sentence):
    """Returns the part of a refusal with the reason, without the parts that depend on the file."""
    if "engines of regular expressions" in sentence:
        return "a pattern with what engines read in different ways"
    for part in ("added token", "has no token for the byte", "cannot be compiled"):
        if part in sentence:
            return part
    return re.sub("[0-9]+", "N", sentence.partition(": ")[2].split(" is ")[0][:60])


def try_case(number, seed, trained, probe, folder, note):
    """Generates a case and compares it. Returns counts, the reason of a refusal, and the finding: a golden case or a
    crash."""
    draw = random.Random(f"{seed} {number}")
    case = draw_case(draw, trained)
    texts, parse = draw_texts(draw, case), draw.random() < 0.5 and case.kind == "tokenizer.json"
    counts = collections.Counter({f"{case.kind} drawn": 1})
    expected = expected_of(case, texts, parse)
    if expected is None:
        return counts + collections.Counter({f"{case.kind} refused by the reference": 1}), None, None
    try:
        ids = probe.ids(case.save(folder), texts, parse)
    except Crash as crash:
        return counts, None, {"crash": f"{number}: {crash}", **case.golden()}
    if isinstance(ids, str):
        return counts + collections.Counter({f"{case.kind} refused": 1}), reason_of(ids), None
    pairs = list(zip(texts, ids, expected, strict=True))
    both = [one for one in pairs if None not in one[1:]]
    counts["texts compared"] = len(both)
    counts["texts refused"] = sum(ours is None for _, ours, _ in pairs)
    counts["texts that the reference fails"] = sum(right is None for _, _, right in pairs)
    bad = next((text for text, ours, right in both if ours != right), None)
    if bad is None:
        return counts, None, None
    note([counts, None, {**case.golden(), "parse": parse, "text": bad.decode("utf-8", errors="replace"), "ids": None}])
    signal.alarm(2 * SHORTENING)
    case, bad = shortened(case, bad, parse, probe, folder)
    return counts, None, {**case.golden(), "parse": parse, "text": bad.decode("utf-8", errors="replace"),
                          "ids": expected_of(case, [bad], parse)[0]}


def try_cases(first, end, seed, trained, output):
    """Writes a line of JSON for each case from the first one on, and one before it for a case that is still to be
    minimized. A reference that does not return ends the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the references' panics and warnings
    with tempfile.TemporaryDirectory() as name, os.fdopen(output, "w") as file:
        probe = Probe(pathlib.Path(name))

        def note(result):
            file.write(json.dumps(result) + "\n")
            file.flush()

        number = first
        while time.monotonic() < end:
            signal.alarm(PATIENCE)
            result = try_case(number, seed, trained, probe, probe.folder, note)
            signal.alarm(0)
            note([number, *result])
            number += 1
        probe.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {', '.join(PACKAGES)}", flush=True)
    counts, refused, golden, crashes = collections.Counter(), collections.Counter(), [], []

    def take(some, reason, found):
        counts.update(some)
        refused.update([reason] if reason else [])
        if found is not None:
            print(json.dumps(found, ensure_ascii=False)[:3000], flush=True)
            (crashes if "crash" in found else golden).append(found)

    trained = trained_models()
    end = time.monotonic() + arguments.seconds
    number = 0
    while time.monotonic() < end:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                try_cases(number, end, arguments.seed, trained, writer)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            large = None
            for line in lines:
                one = json.loads(line)
                if len(one) == 3:
                    large = one
                    continue
                large = None
                number = one[0] + 1
                take(*one[1:])
        os.waitpid(child, 0)
        if large is not None:  # it was found, and the reference did not return from a smaller one
            take(*large)
        if time.monotonic() < end:
            number += 1
            counts["took the reference too long"] += 1
    for key, value in [*sorted(counts.items()), ("differences", len(golden)), ("crashes", len(crashes))]:
        print(f"{value:9} {key}")
    print("refused: " + "; ".join(f"{value} {key}" for key, value in refused.most_common()))
    if arguments.golden:
        lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in golden)
        arguments.golden.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 1 if golden or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
