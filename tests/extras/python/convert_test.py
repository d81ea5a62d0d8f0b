#!/usr/bin/env python3
"""Data sets in every form become token files: what `python3 -m ringtrain_data convert` reads, refuses, and prints, and
that `train` and `prepare` agree with it. RINGTRAIN_BIN names the folder of the programs."""
import contextlib
import csv
import functools
import gzip
import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

import python_package  # first: it finds the package
import numpy
import pyarrow
import pyarrow.parquet
import ringtrain_data.__main__ as program
from python_package import DOCUMENT_END, make_tokenizer, read_tokens
from ringtrain_data import Refused, convert

BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", python_package.ROOT / "build/release/bin"))
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
ROWS = [{"text": "one"}, {"text": "two words"}, {"text": None}, {"text": "three é\nlines"}]
MESSAGES = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]


loaded = functools.cache(python_package.transformers.AutoTokenizer.from_pretrained)


class ConvertTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.chat = make_tokenizer(f"{made.name}/chat", ["<|im_start|>", "<|im_end|>"], CHATML, "", "<|im_end|>")
        cls.text = make_tokenizer(f"{made.name}/text", ["<bos>"], None, "<bos>", "", begins="<bos>")
        cls.ended = make_tokenizer(f"{made.name}/ended", ["<stop>"], None, ends="<stop>")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.count = pathlib.Path(folder.name), 0

    def ids(self, tokenizer, text):
        return loaded(tokenizer)(text, add_special_tokens=False)["input_ids"]

    def end(self, tokenizer, name="<|endoftext|>"):
        return loaded(tokenizer).convert_tokens_to_ids(name)

    def run_program(self, *arguments, code=0):
        """Return the output, errors and the token file's path of a conversion that ends with this exit code."""
        self.count += 1
        output = self.folder / f"out{self.count}.h5"
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder.parent), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = program.main(["convert", *map(str, arguments), "--output", f"{self.folder.name}/{output.name}"])
        self.assertEqual(found, code, err.getvalue())
        return out.getvalue(), err.getvalue(), output

    def refused(self, code, sentence, *arguments):
        _, err, _ = self.run_program("--tokenizer", self.chat, "--input", *arguments, code=code)
        self.assertEqual((len(err.splitlines()), sentence in err), (1, True), err)

    def documents(self, *arguments, tokenizer=None):
        """Return the texts of the result for these arguments, in some order, each with its learned text."""
        _, _, output = self.run_program(*arguments, "--tokenizer", tokenizer or self.text)
        decode = loaded(tokenizer or self.text).decode
        ids, weights, _ = read_tokens(output)
        return sorted((decode(one), decode([token for token, weight in zip(one, some) if weight > 0]))
                      for one, some in zip(ids, weights))

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def test_every_form_of_file_holds_the_same_texts(self):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        table = pyarrow.Table.from_pylist(ROWS)
        pyarrow.parquet.write_table(table, self.folder / "a.parquet", row_group_size=2)
        for name, new in (("file.arrow", pyarrow.ipc.new_file), ("stream.arrow", pyarrow.ipc.new_stream)):
            with new(str(self.folder / name), table.schema) as writer:
                writer.write_table(table)
        with gzip.open(self.folder / "a.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(lines)
        with pyarrow.output_stream(str(self.folder / "a.json.zst"), compression="zstd") as file:
            file.write(json.dumps(ROWS).encode())
        with open(self.folder / "a.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["text"])
            writer.writeheader()
            writer.writerows(ROWS)
        self.write("a.jsonl", lines)
        self.write("b.jsonl", "\ufeff" + lines.replace("\n", "\r\n\r\n"))
        self.write("array.json", json.dumps(ROWS, indent=1 << 18))  # larger than what is read at once
        self.write("lines.json", lines)
        self.write("spread.json", "\n".join(json.dumps(row, indent=1) for row in ROWS))
        os.rename(self.folder / "a.parquet", self.folder / "named.bin")  # its first bytes identify it
        expected = sorted((f"<bos>{row['text']}<|endoftext|>",) * 2 for row in ROWS if row["text"])
        for name in ("named.bin", "file.arrow", "stream.arrow", "a.jsonl", "a.jsonl.gz", "a.json.zst", "a.csv",
                     "b.jsonl", "array.json", "lines.json", "spread.json"):
            with self.subTest(name=name):
                self.assertEqual(self.documents("--input", self.folder / name), expected)

    def test_forms_of_rows(self):
        answered = ("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nSo.<|im_end|>\n<|endoftext|>",
                    "So.<|im_end|><|endoftext|>")
        given, so = (answered[0].replace("Why?", "Why?\nx"), answered[1]), self.ids(self.chat, "So.")
        rows = [
            ({"messages": MESSAGES, "id": 7}, answered),
            ({"messages": json.dumps(MESSAGES)}, answered),
            ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}, MESSAGES[1]]}, answered),
            ({"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]}, answered),
            ({"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}, answered),
            ({"prompt": "Why?\n", "completion": "So."}, ("Why?\nSo.<|endoftext|>", "So.<|endoftext|>")),
            ({"instruction": "Why?", "input": "", "output": "So."}, answered),
            ({"instruction": "Why?", "input": "x", "output": "So."}, given),
            ({"text": "<|im_end|>"}, ("<|im_end|><|endoftext|>",) * 2),
            ({"input_ids": so}, ("So.<|endoftext|>",) * 2),
            ({"input_ids": [7, *so], "attention_mask": [0] + [1] * len(so)}, ("So.<|endoftext|>",) * 2),
            ({"input_ids": so, "labels": [-100] + so[1:]},
             ("So.<|endoftext|>", loaded(self.chat).decode(so[1:]) + "<|endoftext|>")),
            ({"prompt": "[3, 1, 2]", "completion": "[1]"}, ("[3, 1, 2][1]<|endoftext|>", "[1]<|endoftext|>")),
            *(({"said": said}, answered, "--field", "said") for said in (MESSAGES, json.dumps(MESSAGES))),
            *(({"code": text}, (f"{text}<|endoftext|>",) * 2, "--field", "code")
              for text in ('{"a": 1}', "[1, 2]", "[]", '[{"role": "admin"}]', "[" * 9999)),
        ]
        for row, expected, *flags in rows:
            with self.subTest(row=row):
                path = self.write("row.jsonl", json.dumps(row) + "\n")
                self.assertEqual(self.documents("--input", path, *flags, tokenizer=self.chat), [expected])
        # Within a plain text, the name of a token is letters.
        path = self.write("letters.jsonl", json.dumps({"text": "<|im_end|>"}))
        _, _, output = self.run_program("--input", path, "--tokenizer", self.chat)
        self.assertNotIn(self.end(self.chat, "<|im_end|>"), read_tokens(output)[0][0])

    def test_alpaca_without_a_chat_template_is_what_its_authors_trained_on(self):
        path = self.write("alpaca.json", json.dumps([{"instruction": "Add.", "input": "1 2", "output": "3"}]))
        text, learned = self.documents("--input", path)[0]
        self.assertEqual(text, "<bos>Below is an instruction that describes a task, paired with an input that provides "
                         "further context. Write a response that appropriately completes the request.\n\n"
                         "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3<|endoftext|>")
        self.assertEqual(learned, "3<|endoftext|>")

    def test_columns_of_arrow_leave_out_what_a_row_does_not_have(self):
        call = {"type": "function", "function": {"name": "f", "arguments": {"a": "1"}}}
        other = {"type": "function", "function": {"name": "g", "arguments": {"b": "2"}}}
        template = ("{% for m in messages %}{{ m.role + ':' + (m.content or '') }}{% for c in m.tool_calls or [] %}"
                    "{{ c | tojson }}{% endfor %}<|im_end|>{% endfor %}"
                    "{% if add_generation_prompt %}assistant:{% endif %}")
        tokenizer = make_tokenizer(self.folder / "calls", ["<|im_end|>"], template)
        rows = [{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [one]}]}
                for one in (call, other)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "calls.parquet")
        found = self.documents("--input", self.folder / "calls.parquet", tokenizer=tokenizer)
        for one, (text, _) in zip((call, other), found):
            self.assertIn("assistant:" + json.dumps(one), text)

    def test_folders_of_the_hub(self):
        def parquet(name, *texts):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pyarrow.table({"text": list(texts)}), self.folder / name)
        for name, text in (("train-00000-of-00002", "a"), ("train-00001-of-00002", "b"), ("test-00000-of-00001", "c")):
            parquet(f"hub/data/{name}.parquet", text)
        self.write("hub/dataset_infos.json", "{}")
        for head in ("configs:\n- data_files: data/train-*", "", "license: mit"):
            self.write("hub/README.md", f"---\n{head}\n---\n# A card\n")
            self.assertEqual([text for text, _ in self.documents("--input", self.folder / "hub")],
                             ["<bos>a<|endoftext|>", "<bos>b<|endoftext|>"])
        self.assertEqual(len(self.documents("--input", self.folder / "hub", "--split", "test")), 1)
        self.refused(2, "has the splits test, train; choose one with --split", self.folder / "hub", "--split", "dev")
        for head, sentence in (("license: [mit", "expected ','"), ("configs: one", "AttributeError: ")):
            self.write("hub/README.md", f"---\n{head}\n---\n")
            self.refused(3, sentence, self.folder / "hub")
        parquet("card/fr/one.parquet", "f")
        parquet("card/en/one.parquet", "e")
        self.write("card/README.md", "---\nconfigs:\n- config_name: en\n  data_files: en/*.parquet\n- config_name: fr\n"
                   "  data_files:\n  - split: train\n    path: fr/*.parquet\n---\n")
        self.refused(2, "has the subsets en, fr; choose one with --subset", self.folder / "card")
        self.assertEqual(self.documents("--input", self.folder / "card", "--subset", "fr")[0][0], "<bos>f<|endoftext|>")

    def test_arrays_of_tokens(self):
        tokens = numpy.array([5, 6, 7, 8, 9], "<u2")
        numpy.save(self.folder / "t.npy", tokens)
        tokens.tofile(self.folder / "t.bin")
        numpy.save(self.folder / "o.npy", numpy.array([0, 2, 5]))
        numpy.save(self.folder / "table.npy", tokens[:4].reshape(2, 2))
        end = self.end(self.text)
        offsets, listed = ["--offsets", self.folder / "o.npy"], [[5, 6, end], [7, 8, 9, end]]
        for name, flags, expected in (("t.npy", offsets, listed), ("t.bin", ["--dtype", "uint16", *offsets], listed),
                                      ("table.npy", [], [[5, 6, end], [7, 8, end]])):
            _, _, output = self.run_program("--input", self.folder / name, *flags, "--tokenizer", self.text)
            self.assertEqual(sorted(read_tokens(output)[0]), expected)
        for wrong in ([1, 2, 5], [0, 2, 4], [0, 3, 2, 5]):
            numpy.save(self.folder / "wrong.npy", numpy.array(wrong))
            self.refused(3, "must ascend from 0 to 5", self.folder / "t.npy", "--offsets", self.folder / "wrong.npy")
        numpy.save(self.folder / "high.npy", numpy.array([[-1, 5]]))
        self.refused(3, "row 1: ids are -1 to 5, but the tokenizer's are 0 to", self.folder / "high.npy")

    def test_what_is_refused_says_where_and_leaves_nothing(self):
        dangling, skip = make_tokenizer(self.folder / "dangling", []), "--skip-broken-rows"
        os.symlink("nowhere", f"{dangling}/merges.txt")
        cases = [("a.jsonl", '{"text": "a"}\n{"text": \n', 3, "a.jsonl: row 2: Expecting value"),
                 ("b.jsonl", '{"body": "a"}\n', 3, "b.jsonl: row 1: has none of the columns"),
                 ("c.jsonl", '{"text": "a", "messages": []}\n', 3, "both messages and text are there; name the one"),
                 ("d.json", '[{"text": "a"}, {"text"', 3, "d.json: row 2: Expecting ':'", skip),
                 ("d.json", '[{"text": "a"}, {"text": a}, {"text": "b"}]', 3, "d.json: row 2: Expecting value", skip),
                 ("d.json", '[{"text": "a"},\n', 3, "d.json: row 2: Expecting value", skip),
                 ("e.txt", "text", 2, "for plain text, use prepare"),
                 ("f.parquet", "PAR1 and no more", 3, "f.parquet: "),
                 ("g.jsonl", '{"text": "a", "images": ["a.png"]}\n', 3, 'the column "images" is not text'),
                 ("h.jsonl", "\n", 3, "the inputs hold no document"),
                 ("i.npy", "no array", 3, "i.npy: "), ("none", None, 3, "No such file"),
                 ("j.jsonl", '{"text": "a"}', 2, "merges.txt", "--tokenizer", dangling),
                 ("j.jsonl", '{"text": "a"}', 2, "must be from 0 to 0.99", "--validation-fraction", "nan"),
                 ("j.jsonl", '{"text": "a"}', 2, "--seed 0 or more", "--seed", "-1"),
                 ("k.jsonl", "[" * 99999, 3, "k.jsonl: row 1: "),
                 ("k.jsonl", '{"prompt": "a", "completion": ""}', 3, "the inputs hold no document"),
                 ("k.jsonl", '{"prompt": "a", "completion": null}', 3, "k.jsonl: row 1: has none of the columns"),
                 ("k.jsonl", '{"input_ids": [5, 99999]}', 3, "k.jsonl: row 1: ids are 5 to 99999"),
                 ("k.jsonl", '{"prompt": "\\ud83d", "completion": "\\ude00"}', 3, "row 1: a text with learned parts"),
                 ("k.jsonl", '{"messages": []}', 3, "k.jsonl: row 1: the conversation has no messages"),
                 ("k.jsonl", '{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', 3, "content is not "),
                 ("k.jsonl", '{"messages": [{"role": "assistant", "tool_calls": "x"}]}', 3, "row 1: AttributeError: ")]
        for name, text, code, sentence, *flags in cases:
            with self.subTest(text=text, flags=flags):
                path = self.folder / name if text is None else self.write(name, text)
                before = sorted(self.folder.iterdir())
                self.refused(code, sentence, path, *flags)
                self.assertEqual(sorted(self.folder.iterdir()), before)
        for number in (signal.SIGINT, signal.SIGTERM):
            with unittest.mock.patch.object(program.rows, "rows", lambda *_: map(signal.raise_signal, [number])), \
                    self.assertRaisesRegex(SystemExit, str(128 + number)):
                self.run_program("--input", "a", "--tokenizer", self.text)
            self.assertEqual(sorted(self.folder.iterdir()), before)
        lines = ['{"text": "a"}', '{"text": ', '{"text": null}', '{"text": ""}', *(case[1] for case in cases[-6:])]
        broken = self.write("broken.jsonl", "\n".join(lines))
        out, _, _ = self.run_program("--input", broken, "--tokenizer", self.chat, skip)
        self.assertIn("rows                   10; left out: 7 broken and 2 empty", out)
        self.count -= 1
        self.refused(2, "already exists", broken)

    def test_what_it_says(self):
        path = self.write("chat.jsonl", 20 * (json.dumps({"messages": MESSAGES, "source": "web"}) + "\n"))
        out, _, output = self.run_program("--input", path, "--tokenizer", self.chat)
        for line in ("  rows                   20; left out: 0 broken and 0 empty",
                     "  documents              20, 2 for validation", "  read as                conversation 20",
                     "  columns not read       source"):
            self.assertIn(line, out)
        ids, weights, manifest = read_tokens(output)
        learned = sum(weight > 0 for some in weights for weight in some)
        self.assertIn(f"  trained on             {learned:,} tokens, {100 * learned / sum(map(len, ids)):.1f}%", out)
        self.assertTrue(out.rstrip().endswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
                                              "[[So.<|im_end|>]]\n[[<|endoftext|>]]"), out)
        self.assertEqual(manifest["first_validation_document"], 18)
        generation = json.loads(pathlib.Path(f"{output}.tokenizer/generation_config.json").read_text("utf-8"))
        self.assertEqual(generation["eos_token_id"], [self.end(self.chat), self.end(self.chat, "<|im_end|>")])

    def test_iterables_and_surrogates(self):
        rows = ["a text", MESSAGES, numpy.array([5, 6]), {"text": "half \ud83d"}]
        lines = convert(rows, self.chat, self.folder / "own.h5", validation_fraction=0)
        self.assertIn("texts that had them: 1", lines)
        ids, weights, _ = read_tokens(self.folder / "own.h5")
        self.assertIn([5, 6, self.end(self.chat)], ids)
        self.assertIn(self.ids(self.chat, "half \ufffd") + [self.end(self.chat)], ids)
        self.assertEqual(sorted(len([1 for weight in some if weight == 0]) for some in weights)[-1],
                         len(self.ids(self.chat, "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")) + 1)
        with self.assertRaisesRegex(Refused, "row 1: a row has the type int, not a dict"):
            convert([7], self.chat, self.folder / "int.h5")

    def test_texts_begin_as_the_tokenizer_begins_them(self):
        path = self.write("a.jsonl", '{"text": "a"}\n{"prompt": "b", "completion": "c"}\n')
        begins, end = self.end(self.text, "<bos>"), self.end(self.text)
        out, _, output = self.run_program("--input", path, "--tokenizer", self.text)
        self.assertIn("begin as the tokenizer begins them: with <bos>", out)
        ids, weights, _ = read_tokens(output)
        both = {tuple(one): some for one, some in zip(ids, weights)}
        prompt = (begins, *self.ids(self.text, "bc"), end)
        self.assertEqual(set(both), {(begins, *self.ids(self.text, "a"), end), prompt})
        self.assertEqual(both[prompt][0], 0)
        self.assertEqual(read_tokens(output)[2]["document_start"], [begins])
        _, _, output = self.run_program("--input", path, "--tokenizer", self.text, "--document-start", "none")
        self.assertNotIn(begins, [one for some in read_tokens(output)[0] for one in some])
        self.assertEqual(read_tokens(output)[2]["document_start"], [])
        convert(["a", [begins, 5], [5, 6]], self.text, self.folder / "mixed.h5")
        self.assertNotIn("document_start", read_tokens(self.folder / "mixed.h5")[2])
        convert(["a", [begins, 5]], self.text, self.folder / "equal.h5")
        self.assertEqual(read_tokens(self.folder / "equal.h5")[2]["document_start"], [begins])

    @unittest.skipUnless((BIN / "prepare").exists(), "the programs are not built")
    def test_prepare_names_this_package_for_conversations(self):
        path = self.write("chat.jsonl", json.dumps({"messages": MESSAGES}) + "\n")
        for code, flags in ((3, []), (2, ["--chat", "chatml"]), (2, ["--train-on", "user,assistant"])):
            made = subprocess.run([BIN / "prepare", "--input", path, "--output", self.folder / "chat.h5", *flags],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((made.returncode, made.stdout), (code, ""), made.stderr)
            self.assertIn("`python3 -m ringtrain_data convert", made.stderr)

    def test_documents_lie_where_their_numbers_do(self):
        texts = [f"{'word ' * (i % 7)}number {i}" for i in range(300)]
        convert(texts, self.text, self.folder / "many.h5", validation_fraction=0.25)
        ids, _, manifest = read_tokens(self.folder / "many.h5")
        found = [loaded(self.text).decode(one, skip_special_tokens=True) for one in ids]
        self.assertEqual(sorted(found), sorted(texts))
        self.assertNotEqual(found, texts)
        self.assertEqual(manifest["first_validation_document"], 225)
        with python_package.h5py.File(self.folder / "many.h5") as file:
            self.assertEqual(file["document_bytes"][:].tolist(), [len(text.encode()) for text in found])
            self.assertEqual(manifest["byte_count"], sum(len(text.encode()) for text in texts))

    @unittest.skipUnless((BIN / "train").exists(), "the programs are not built")
    def test_prepare_makes_the_same_and_train_takes_it(self):
        path = self.write("a.jsonl", "".join(json.dumps({"text": f"a line of text {i}"}) + "\n" for i in range(40)))
        os.environ["RINGTRAIN_BIN"] = str(BIN)
        named = ["--document-end", DOCUMENT_END]
        for tokenizer, flags in ((self.ended, []), (self.ended, named), (self.text, []), (self.chat, named)):
            _, _, output = self.run_program("--input", path, "--tokenizer", tokenizer, *flags)
            prepared = self.folder / f"prepared-{pathlib.Path(tokenizer).name}-{len(flags)}.h5"
            subprocess.run([BIN / "prepare", "--input", path, "--tokenizer", tokenizer, *flags, "--output", prepared],
                           check=True, capture_output=True)
            ours, theirs = read_tokens(output), read_tokens(prepared)
            self.assertEqual(sorted(ours[0]), sorted(theirs[0]))
            for key in ("tokenizer_hash", "vocab_size", "document_start", "end_of_document",
                        "first_validation_document", "byte_count"):
                self.assertEqual(ours[2][key], theirs[2][key], key)
        config = python_package.ROOT / "configs/tiny.yaml"
        trained = subprocess.run(
            [BIN / "train", "--config", config, "--output", self.folder / "run", "--set", f"data.train={output}",
             "--set", f"model.vocab_size={ours[2]['vocab_size']}", "--set", "training.seq_len=16",
             "--set", "training.global_batch_size=2", "--set", "training.steps=2"],
            capture_output=True, text=True, check=False)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertTrue((self.folder / "run/tokenizer/tokenizer.json").exists())


if __name__ == "__main__":
    unittest.main()
