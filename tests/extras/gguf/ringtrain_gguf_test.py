#!/usr/bin/env python3
"""Folders of GGUF files: the weights, tokenizers and refusals of extras/python/ringtrain_gguf.py.

Skipped (77) if gguf or tokenizers is not installed; RINGTRAIN_PYTHON names another interpreter than the system's."""
import contextlib
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import tempfile
import types
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(TESTS / "support"), str(TESTS.parent / "extras" / "python")]
import environment  # noqa: E402  (the path above comes first)

environment.use()
try:
    import gguf  # noqa: F401
    import tokenizers
except ImportError as error:
    environment.skip(error)
import ringtrain_gguf as converter  # noqa: E402

MODEL = (TESTS / "extras" / "gguf" / "model" / "model.gguf").read_bytes()
TINY = TESTS / "tokenizers" / "tiny"
# Of model.safetensors, as written by a C++ program that decoded the blocks independently, in float64, and rounded once.
WEIGHTS = {"float32": "8c067ae15780484e38644120f4d75f630af50e6658a3bdd8812c8dfd1a4bc568",
           "bfloat16": "6f57e56181bf759b68e11aeb658a94b24496f5c4bcec12fe97ba50532c876c47",
           "float16": "30b54579b593c20a930156cacb5eadc12c4f933a08be6041e757b17498cc01ac"}
LETTERS = [("<unk>", 0.0, 2), ("</s>", 0.0, 3), ("a", -100.0, 1), ("b", -101.0, 1), ("c", -102.0, 1)]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


class Values(converter.GgufFile):
    """A file with these keys of a tokenizer."""

    def __init__(self, **values):
        self.path, self.read, self.tensors = "a test", set(), {}
        self.fields = {"tokenizer.ggml." + key: types.SimpleNamespace(contents=lambda value=value: value)
                       for key, value in values.items()}


def tokenizer_of(**values):
    return converter.tokenizer_files(Values(**values), None, [])["tokenizer.json"]


def pieces(more, **others):
    texts, scores, kinds = (list(column) for column in zip(*LETTERS, *more))
    return tokenizer_of(model="llama", tokens=texts, scores=scores, token_type=kinds, **others)


def merged(text, rank):
    """Returns the result of merging: of all adjacent pairs the one with the lowest rank, the leftmost first; None: no
    rank."""
    symbols = list(text)
    while True:
        ranks = [(rank(a, b), at) for at, (a, b) in enumerate(zip(symbols, symbols[1:])) if rank(a, b) is not None]
        if not ranks:
            return symbols
        at = min(ranks)[1]
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = pathlib.Path(self.folder.name) / "out"

    def convert(self, data, *flags):
        """Returns the exit code and the text printed on stderr."""
        path, said = pathlib.Path(self.folder.name) / "model.gguf", io.StringIO()
        path.write_bytes(data)
        sys.argv = ["ringtrain_gguf", "--input", str(path), "--output", str(self.output), *flags]
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = converter.main()
        return code, said.getvalue()

    def test_every_weight_is_the_files(self):
        for dtype, expected in WEIGHTS.items():
            self.output = self.output.with_name(dtype)
            self.assertEqual(self.convert(MODEL, "--dtype", dtype)[0], 0)
            content = (self.output / "model.safetensors").read_bytes()
            self.assertEqual(hashlib.sha256(content).hexdigest(), expected, dtype)
        config = json.loads((self.output / "config.json").read_text())
        self.assertEqual((config["rms_norm_eps"], config["rope_theta"], config["eos_token_id"], config["head_dim"],
                          config["tie_word_embeddings"], config["vocab_size"], config["torch_dtype"]),
                         (0.0009765625, 50000, 47, 8, False, 48, "float16"))
        self.assertEqual(json.loads((self.output / "generation_config.json").read_text()),
                         {"bos_token_id": None, "eos_token_id": 47})

    def test_what_is_not_known_is_refused_by_name(self):
        for old, new, said in (
                (b"llama.rope.freq_base", b"llama.rope.freq_bass", "has the key llama.rope.freq_bass"),
                (text("llama"), text("gemma"), 'is of architecture "gemma"'),
                (b"blk.0.attn_q.", b"xlk.0.attn_q.", "has no tensor blk.0.attn_q.weight"),
                (text("output.weight"), text("xutput.weight"), "has xutput.weight"),
                (b"rope.dimension_count" + struct.pack("<II", 4, 8), b"rope.dimension_count" + struct.pack("<II", 4, 4),
                 "rope.dimension_count is 4, but a head has 8 elements"),
                (b"block_count" + struct.pack("<II", 4, 2), b"block_count" + struct.pack("<II", 4, 160_000_000),
                 "has no tensor blk.2.attn_norm.weight"),
                (b"feed_forward_length" + struct.pack("<II", 4, 64), b"feed_forward_length" + struct.pack("<II", 4, 63),
                 "is [64, 32], but this model's is [63, 32]"),
                (b"head_count_kv" + struct.pack("<II", 4, 2), b"head_count_kv" + struct.pack("<II", 4, 3),
                 "are inconsistent"),
                (b"GGUF", b"GGML", "not a GGUF file")):
            self.assertEqual(MODEL.count(old), 1, old)
            code, sentence = self.convert(MODEL.replace(old, new))
            self.assertEqual(code, 4, sentence)
            self.assertIn("model.gguf: ", sentence)
            self.assertIn(said, sentence)
            self.assertFalse(self.output.exists())
        self.output.mkdir()
        self.assertEqual(self.convert(MODEL)[0], 2)

    def test_an_id_that_is_no_token_is_said_and_left_out(self):
        data = MODEL.replace(b"eos_token_id" + struct.pack("<II", 4, 47), b"eos_token_id" + struct.pack("<II", 4, 48))
        code, said = self.convert(data)
        self.assertEqual(code, 0)
        self.assertIn("tokenizer.ggml.eos_token_id: 48 is not a token", said)
        self.assertIsNone(json.loads((self.output / "config.json").read_text())["eos_token_id"])

    def test_a_damaged_file_is_a_sentence(self):
        draw = random.Random(3)
        damaged = [MODEL[:draw.randrange(len(MODEL))] for _ in range(200)]
        for _ in range(200):
            data = bytearray(MODEL)
            for _ in range(draw.choice([1, 1, 4, 64])):
                data[draw.randrange(3000 if draw.random() < 0.8 else len(data))] = draw.randrange(256)
            damaged.append(bytes(data))
        for number, data in enumerate(damaged):
            self.output = self.output.with_name(f"out{number}")
            code, said = self.convert(data)
            self.assertIn(code, (4,) if number < 200 else (0, 4), said)
            self.assertTrue(all(line.startswith("ringtrain_gguf: ") for line in said.splitlines()), said)
            self.assertEqual(self.output.exists(), code == 0)


class Tokenizers(unittest.TestCase):
    def refused(self, said, make, *arguments, **others):
        with self.assertRaises((converter.Refusal, ValueError), msg=said) as caught:
            make(*arguments, **others)
        self.assertIn(said, str(caught.exception))

    def test_ids_are_those_of_the_reference_programs(self):
        source, golden = (json.loads((TINY / name).read_text()) for name in ("byte_level.json", "golden.json"))
        names = {token: number for token, number in source["model"]["vocab"].items()}
        names |= {token["content"]: token["id"] for token in source["added_tokens"]}
        kinds = {token["content"]: 3 if token["special"] else 4 for token in source["added_tokens"]}
        tokens = sorted(names, key=names.get)
        forms = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2", "tekken": "tekken",
                 "o200k": "gpt-4o"}
        found = {case["name"]: case["text"] for case in golden["cases"] if case["name"] in forms}
        self.assertEqual(found.keys(), forms.keys())
        for name, expected in found.items():
            made = tokenizer_of(model="gpt2", pre=forms[name], tokens=tokens,
                                token_type=[kinds.get(token, 1) for token in tokens],
                                merges=[" ".join(merge) for merge in source["model"]["merges"]])
            tokenizer = tokenizers.Tokenizer.from_str(json.dumps(made))
            tokenizer.encode_special_tokens = True
            for one, ids in zip(golden["texts"], expected):
                self.assertEqual(tokenizer.encode(one, add_special_tokens=False).ids, ids, (name, one))

    def test_merges_of_pieces_give_what_scores_give(self):
        draw, kept, refused = random.Random(17), 0, 0
        for number in range(240):
            letters = "abc"[:draw.randint(1, 3)]
            scores = {"".join(draw.choices(letters, k=draw.randint(2, 6))):
                      -float(draw.randrange(3 if number % 4 == 0 else 10**6)) for _ in range(draw.randint(3, 14))}
            if number % 4 == 1:  # as in real models for spaces: all with one score, some lengths missing
                scores = {one: score for one, score in scores.items() if len(set(one)) > 1}
                scores |= {"a" * length: -1e9 for length in range(2, 18) if length == 2 or draw.random() < 0.75}
            try:
                merges = pieces([(one, score, 1) for one, score in scores.items()])["model"]["merges"]
            except converter.Refusal:
                refused += 1
                continue
            kept += number % 4 == 1
            ranks = {tuple(merge): rank for rank, merge in enumerate(merges)}
            for _ in range(20):
                one = "".join(draw.choices(letters, k=draw.randint(1, 20))) + "a" * draw.randrange(60)
                by_score = merged(one, lambda a, b: -scores[a + b] if a + b in scores else None)
                self.assertEqual(merged(one, lambda a, b: ranks.get((a, b))), by_score, (scores, one))
        self.assertGreater(min(kept, refused), 20)

    def test_a_piece_is_made_in_one_way_only(self):
        for more, expected in (([("aa", -1.0, 1), ("aaa", -2.0, 1)], [["a", "a"], ["aa", "a"]]),
                               ([("abc", -1.0, 1), ("abca", -2.0, 1)], [])):
            self.assertEqual(pieces(more)["model"]["merges"], expected)

    def test_one_sentence_for_what_no_tokenizer_json_says(self):
        byte_level = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
        tokenizer_of(**byte_level)
        for said, changed in (('pre is "tomorrow"', {"pre": "tomorrow"}), ('kind "bert"', {"model": "bert"}),
                              ("merge 0 is 'no_pair'", {"merges": ["no_pair"]}), ("merge 0", {"merges": ["a c"]}),
                              ("shorter", {"token_type": [1, 1]}), ("tokens 0 and 1", {"tokens": ["a", "a", "ab"]}),
                              ("not a list of str", {"merges": [1]})):
            self.refused(said, tokenizer_of, **{**byte_level, **changed})
        for said, more in (("have the same score", [("ab", -1.0, 1), ("bc", -1.0, 1)]),
                           ("have the same score", [("aa", -1.0, 1), ("aaa", -1.0, 1), ("aaaaa", -2.0, 1)]),
                           ("tokens 5 and 6 are the same", [("ab", -1.0, 1), ("ab", -2.0, 1)]),
                           ("'x' is in a piece but is not a piece itself", [("ax", -1.0, 1)]),
                           ("piece 5, '<tool>'", [("<tool>", 0.0, 4)]), ("piece 5, 'x'", [("x", 0.0, 3)]),
                           ("piece 5 is not a text", [("a" * 1025, -1.0, 1)]),
                           ("piece 5 is not a text", [("ab", float("nan"), 1)]),
                           ("must have all byte pieces", [("<0x0A>", 0.0, 6)])):
            self.refused(said, pieces, more)
        self.refused("remove_extra_whitespaces", pieces, [], remove_extra_whitespaces=True)

    def test_tokens_at_the_ends_of_a_text_are_the_post_processor(self):
        made = pieces([], bos_token_id=1, add_bos_token=True)
        self.assertEqual(made["post_processor"]["single"],
                         [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}])
        self.assertEqual(made["post_processor"]["special_tokens"],
                         {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}})
        self.assertIsNone(pieces([], bos_token_id=1)["post_processor"])


if __name__ == "__main__":
    unittest.main()
