#!/usr/bin/env python3
"""`python3 -m ringtrain_data chat`: the tokens and flags that generate receives, turn by turn, and the printed text. A
program that replaces generate records its input and answers from a list; lora_page_test.py uses the real one."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import python_package  # first: it finds the package
import ringtrain_data.__main__ as program
from families import FAMILIES

ANSWERS = ["Hello, you.", "Again: é", "Bye."]
GENERATE = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
asked = folder / "asked.jsonl"
turn = len(asked.read_text().splitlines()) if asked.exists() else 0
with open(asked, "a") as file:
    file.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + "\\n")
answers, ending, code = json.loads((folder / "answers.json").read_text())
print(",".join(map(str, answers[turn])))
print("generate: a remark\\ngenerate: prompt: 3 tokens in 0.1 s; " + ending, file=sys.stderr)
sys.exit(code)
"""


class ChatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "generate").write_text(GENERATE.format(python=sys.executable))
        (self.folder / "generate").chmod(0o755)

    def make(self, family, place="run/tokenizer"):
        """Write a run's tokenizer, and return it as transformers has it."""
        family = FAMILIES[family]
        (self.folder / "run/checkpoints/step-00000002").mkdir(parents=True)
        python_package.make_tokenizer(self.folder / place, family.special, family.plain(), family.bos, family.eos)
        tokenizer = python_package.transformers.AutoTokenizer.from_pretrained(self.folder / place)
        answers = [tokenizer(one, add_special_tokens=False)["input_ids"] for one in ANSWERS]
        self.answer_with(answers)
        return tokenizer

    def answer_with(self, answers, ending="the document ended", code=0):
        (self.folder / "answers.json").write_text(json.dumps([answers, ending, code]))

    def talk(self, text, *flags, checkpoint="run", terminal=False):
        """Return the exit code, the output and the errors of a conversation."""
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        stdin.isatty = lambda: terminal
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                unittest.mock.patch("sys.stdin", stdin), unittest.mock.patch.dict(os.environ, RINGTRAIN_BIN="."):
            code = program.main(["chat", "--checkpoint", checkpoint, *flags])
        return code, out.getvalue(), err.getvalue()

    def asked(self):
        return [json.loads(line) for line in (self.folder / "asked.jsonl").read_text().splitlines()]

    def check_turns(self, tokenizer, messages, end):
        """Hold what generate was given against transformers' ids of the conversation so far."""
        for turn, (flags, prompt) in enumerate(self.asked()):
            so_far = messages[:len(messages) - 2 * (len(self.asked()) - 1 - turn)]
            expected = tokenizer.apply_chat_template(so_far, add_generation_prompt=True, return_dict=False)
            self.assertEqual(list(map(int, prompt.split())), expected)
            self.assertEqual(flags[flags.index("--stop-token") + 1], str(tokenizer.convert_tokens_to_ids(end)))

    def test_turns_are_written_by_the_template_of_the_checkpoint(self):
        for family, end in (("llama 3.1", "<|eot_id|>"), ("gemma 3", "<end_of_turn>"), ("mistral", "</s>"),
                            ("qwen 3", "<|im_end|>"), ("phi 3", "<|end|>")):
            with self.subTest(family=family):
                self.setUp()
                tokenizer = self.make(family)
                code, out, err = self.talk("Hi\nAgain\nBye\n", "--system", "Be short.", "--", "--temperature", "0.8")
                self.assertEqual((code, out, err), (0, "".join(f"{one}\n" for one in ANSWERS), ""))
                self.assertEqual(len(self.asked()), 3)
                self.check_turns(tokenizer, [
                    {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": ANSWERS[0]}, {"role": "user", "content": "Again"},
                    {"role": "assistant", "content": ANSWERS[1]}, {"role": "user", "content": "Bye"}], end)
                flags = self.asked()[0][0]
                self.assertEqual(flags[:6], ["--checkpoint", "run", "--tokens-file", "-", "--max-new-tokens", "512"])
                self.assertIn("--temperature 0.8", " ".join(flags))

    def test_checkpoints_of_all_kinds_have_a_tokenizer(self):
        self.make("gemma")
        for checkpoint in ("run", "run/checkpoints/step-00000002", "run/tokenizer"):
            (self.folder / "asked.jsonl").unlink(missing_ok=True)
            self.assertEqual(self.talk("Hi\n", checkpoint=checkpoint, terminal=True), (0, "Hello, you.\n", "> > "))

    def test_an_answer_that_is_cut_off_is_said_to_be(self):
        tokenizer = self.make("gemma")
        self.answer_with([tokenizer("Hell", add_special_tokens=False)["input_ids"]], "--max-new-tokens is reached")
        self.assertEqual(self.talk("Hi\n", "--max-tokens", "1"),
                         (0, "Hell\n", "(cut off: --max-new-tokens is reached)\n"))
        self.assertEqual(self.asked()[0][0][5], "1")

    def test_one_sentence_for_what_cannot_be(self):
        self.make("gemma")
        self.answer_with([[]], "the prompt is too long", 2)
        cases = [(self.talk("Hi\n"), 2, "the prompt is too long"),
                 (self.talk("Hi\n", checkpoint="nothing"), 2, "nothing"),
                 (self.talk("Hi\n", "--chat-template", "none.jinja"), 2, "none.jinja"),
                 (self.talk("Hi\n", "--generate", "./none"), 2, "none"),
                 (self.talk("Hi\n", "--system", "x"), 3, "refuses this conversation")]
        for (found, out, err), code, sentence in cases:
            with self.subTest(sentence=sentence):
                self.assertEqual((found, out), (code, ""), err)
                self.assertIn(sentence, err)


if __name__ == "__main__":
    unittest.main()
