#!/usr/bin/env python3
"""Conversations as models' own chat templates write them, by two tokenizers: chats.json holds the ids that transformers'
apply_chat_template gave for templates as they are published, with and without the beginning of an answer, for messages
with white space and marks of all kinds. The templates below are written for this test and write the same. Both what
`convert` learns from and what `chat` asks with must have these ids."""
import json
import pathlib
import tempfile
import unittest

import python_package  # first: it finds the package
from families import CHATML_ASKS, FAMILIES
from ringtrain_data.conversations import ChatTemplate
from ringtrain_data.forms import Document
from ringtrain_data.tokens import Encoder, load_tokenizer

MARKS = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
         "<bos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '" + CHATML_ASKS.replace("\n", "\\n") + "' }}{% endif %}")
SMOLLM2 = ("{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, "
           "trained by Hugging Face<|im_end|>\\n' }}{% endif %}" + CHATML)
LLAMA3_1 = (r"{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n' }}"
            r"{{ 'Today Date: 26 Jul 2024\n\n' }}{% set rest = messages %}{% if messages[0].role == 'system' %}"
            "{{ messages[0].content | trim }}{% set rest = messages[1:] %}{% endif %}{{ '<|eot_id|>' }}"
            + FAMILIES["llama 3"].plain().replace("in messages", "in rest").replace("{{ bos_token }}", ""))
LLAMA2 = (r"{% for m in (messages[1:] if messages[0].role == 'system' else messages) %}"
          r"{% set c = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' + m.content "
          r"if loop.first and messages[0].role == 'system' else m.content %}{% if m.role == 'user' %}"
          r"{{ bos_token + '[INST] ' + c | trim + ' [/INST]' }}{% else %}{{ ' ' + c | trim + ' ' + eos_token }}"
          r"{% endif %}{% endfor %}")
# Spaces around the marks, and whether the system message comes before the first or the last message of the user.
MISTRAL = (r"{{ bos_token }}{% set system = messages[0].role == 'system' %}"
           r"{% for m in (messages[1:] if system else messages) %}{% if m.role == 'user' %}{{ 'BEFORE[INST]AFTER' }}"
           r"{{ messages[0].content + '\n\n' if system and loop.WHERE else '' }}{{ m.content + 'END[/INST]' }}"
           r"{% else %}{{ 'ANSWER' + CONTENT + eos_token + 'NEXT' }}{% endif %}{% endfor %}")


def mistral(before="", after="", end="", answer="", following="", where="last", content="m.content"):
    """Return Mistral's template with these spaces."""
    template = MISTRAL
    for name, text in (("BEFORE", before), ("AFTER", after), ("END", end), ("ANSWER", answer), ("NEXT", following),
                       ("WHERE", where), ("CONTENT", content)):
        template = template.replace(name, text)
    return template


GEMMA = FAMILIES["gemma"].plain()
TEMPLATES = {
    "chatml": CHATML, "smollm2": SMOLLM2, "qwen2_5": FAMILIES["qwen 2.5"].plain(),
    "qwen3": FAMILIES["qwen 3"].plain(), "llama2": LLAMA2, "llama3": FAMILIES["llama 3"].plain(), "llama3_1": LLAMA3_1,
    "mistral_v0_1": mistral(after=" ", end=" ", following=" "), "mistral_v0_2": mistral(after=" ", end=" "),
    "mistral_v1": mistral(" ", " ", " ", " ", where="first"),
    "mistral_v3": mistral(after=" ", answer=" ", content="m.content | trim"), "mistral_nemo": mistral(),
    "gemma": GEMMA, "gemma_no_bos": GEMMA.replace("{{ bos_token }}", ""), "gemma3": FAMILIES["gemma 3"].plain(),
}


class ChatsTest(unittest.TestCase):
    def test_ids_are_those_of_published_templates(self):
        golden = json.loads(pathlib.Path(__file__).with_name("chats.json").read_text("utf-8"))
        self.assertEqual({(one["style"], one["base"]) for one in golden},
                         {(style, base) for style in TEMPLATES for base in ("byte_level.json", "sentencepiece.json")})
        for one in golden:
            style = one["style"]
            bos, eos = ("<|begin_of_text|>", "<|eot_id|>") if style.startswith("llama3") else (
                "<bos>", "<end_of_turn>") if style.startswith("gemma") else ("<s>", "</s>")
            special = [*MARKS, "[INST]", "[/INST]"] if style in ("mistral_v3", "mistral_nemo") else MARKS
            with tempfile.TemporaryDirectory() as folder:
                tokenizer = load_tokenizer(python_package.make_tokenizer(
                    folder, special, TEMPLATES[style], bos, eos, base=one["base"]))
                encoder, template = Encoder(tokenizer, tokenizer.eos_token_id), ChatTemplate(tokenizer)
                for case in one["cases"]:
                    for name, asks in (("ids", False), ("answer", True)):
                        with self.subTest(style=style, base=one["base"], messages=case["messages"], asks=asks):
                            text = template.render(case["messages"], None, {}, add_generation_prompt=asks)
                            self.assertEqual(tokenizer(text, add_special_tokens=False)["input_ids"], case[name])
                            ids = encoder.encode([Document(text, [], rendered=True)])[0][0].tolist()
                            ends = [] if case[name][-1] == encoder.end else [encoder.end]
                            self.assertEqual(ids, case[name] + ends)


if __name__ == "__main__":
    unittest.main()
