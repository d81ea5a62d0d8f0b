#!/usr/bin/env python3
"""The learned parts of a conversation: twenty conversations for each of thirteen families of chat templates, with
learned parts written here by hand, once with the template's own marks ({% generation %}) and once without them."""
import json
import tempfile
import unittest

import python_package  # first: it finds the package
from families import FAMILIES
from ringtrain_data import Refused
from ringtrain_data.forms import Forms
from ringtrain_data.tokens import Encoder, load_tokenizer, special_id

CALL, CALLS, SAID_AND_CALL = object(), object(), object()
TOOLS = [{"type": "function", "function": {"name": name, "description": "one", "parameters": {"type": "object"}}}
         for name in ("weather", "sum")]
WEATHER = {"type": "function", "id": "abcdefgh1", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
SUM = {"type": "function", "id": "abcdefgh2", "function": {"name": "sum", "arguments": '{"values": [1, 2]}'}}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def answer(text, **keys):
    return {"role": "assistant", "content": text, **keys}


def call(*calls, **keys):
    return {"role": "assistant", "tool_calls": list(calls), **keys}


def result(text):
    return {"role": "tool", "content": text, "tool_call_id": "abcdefgh1"}


# Each conversation, and what is learned of it: texts of answers, or calls as the family writes them, in order; with a
# weight if it is not 1. Whether the last of them is the conversation's last message.
CONVERSATIONS = [
    ([user("Why?"), answer("So.")], ["So."], True),
    ([user("Why?"), answer("So."), user("Why not?"), answer("Then not.")], ["So.", "Then not."], True),
    ([user("1"), answer("one"), user("2"), answer("two"), user("3"), answer("three")], ["one", "two", "three"], True),
    ([system("Be short."), user("Why?"), answer("So.")], ["So."], True),
    ([system("Be short."), user("Why?"), answer("So."), user("And?"), answer("No more.")], ["So.", "No more."], True),
    ([user("Why?"), answer("So."), user("And?")], ["So."], False),
    ([user("x"), answer("z", weight=0), user("x2"), answer("z2", weight=1)], ["z2"], True),
    ([user("x"), answer("z"), user("x2"), answer("z2", weight=0.5)], ["z", ("z2", 0.5)], True),
    ([user("x"), answer("z", train=True), user("x2"), answer("z2", trainable=False)], ["z"], False),
    ([user("Code."), answer("```py\nif x:\n    y()\n```")], ["```py\nif x:\n    y()\n```"], True),
    ([user("é 日本語"), answer("naïve 日本語 😀!"), user("😀"), answer("ü")], ["naïve 日本語 😀!", "ü"], True),
    ([user(" padded "), answer("padded  "), user("b"), answer(" c ")], ["padded  ", " c "], True),
    ([user("a\n"), answer("\n\nb\n\n"), user("b"), answer("c\n")], ["\n\nb\n\n", "c\n"], True),
    ([user("Say nothing."), answer(""), user("Again."), answer("")], ["", ""], True),
    ([user("echo"), answer("echo"), user("echo"), answer("echo")], ["echo", "echo"], True),
    ([user("x"), answer("z", loss_mask=0), user("y"), answer("w", loss=False), user("v"), answer("u")], ["u"], True),
    ([user("Weather?"), call(WEATHER), result("20 degrees"), answer("It is warm.")], [CALL, "It is warm."], True),
    ([user("Weather?"), answer("Let me see.", tool_calls=json.dumps([WEATHER])), result("20"), answer("Warm.")],
     [SAID_AND_CALL, "Warm."], True),
    ([user("Both?"), call(WEATHER, SUM), result("20"), result("3"), answer("20 and 3.")], [CALLS, "20 and 3."], True),
    ([user("Weather?"), call(WEATHER, training=False), result("20"), answer("Warm."), user("Thanks."), answer("Fine.")],
     ["Warm.", "Fine."], True),
]


def expected(family, learned, ends_there):
    """Return the learned texts, each with its weight; None if the family refuses the conversation."""
    pieces = []
    for number, one in enumerate(learned):
        text, weight = one if isinstance(one, tuple) else (one, 1.0)
        last = ends_there and number == len(learned) - 1
        if text is CALL:
            text = family.call.replace("{}", '{"name": "weather", "arguments": {"city": "Paris"}}')
        elif text is SAID_AND_CALL:
            text = family.said_and_call.replace("{}\n", "Let me see.\n").replace("\n{}", "\n" + family.call).replace(
                "{}", '{"name": "weather", "arguments": {"city": "Paris"}}')
        elif text is CALLS:
            text = family.calls or "\n".join(family.call.replace("{}", one) for one in (
                '{"name": "weather", "arguments": {"city": "Paris"}}',
                '{"name": "sum", "arguments": {"values": [1, 2]}}'))
        else:
            text = family.before + (text.strip() if family.trims else text)
        text = (family.last_before if last else "") + text
        pieces.append((text + (family.last_end if last and family.last_end else family.end), weight))
    return pieces


def learned_texts(tokenizer, ids, weights):
    """Return the runs of tokens of equal weight above 0, and the text before each."""
    found, begin = [], 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or weights[i] != weights[begin]:
            if weights[begin] > 0:
                found.append((tokenizer.decode(ids[begin:i]), float(weights[begin]), tokenizer.decode(ids[:begin])))
            begin = i
    return found


class MasksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tokenizer(self, name, template):
        family = FAMILIES[name]
        folder = f"{self.folder.name}/{name}"
        return load_tokenizer(python_package.make_tokenizer(folder, family.special, template, family.bos, family.eos))

    def check(self, name, template):
        family = FAMILIES[name]
        tokenizer = self.tokenizer(name, template)
        encoder = Encoder(tokenizer, special_id(tokenizer, python_package.DOCUMENT_END))
        for messages, learned, ends_there in CONVERSATIONS:
            has_tools = any("tool_calls" in message for message in messages)
            refused = (has_tools and not family.tools) or (messages[0]["role"] == "system" and not family.system) or (
                CALLS in learned and family.calls == "refused") or (
                SAID_AND_CALL in learned and family.said_and_call == "refused")
            row = {"messages": messages, "tools": TOOLS if has_tools else None}
            with self.subTest(family=name, messages=messages):
                if refused:
                    with self.assertRaises(Refused):
                        Forms(tokenizer).document(row)
                    continue
                ids, weights, _ = encoder.encode([Forms(tokenizer).document(row)])[0]
                self.assertEqual((ids[-1], weights[-1]), (encoder.end, 1))
                if not has_tools:  # the ids with which `chat` prompts are compared in chat_test.py
                    self.assertEqual(ids[:-1].tolist(), tokenizer.apply_chat_template(messages, return_dict=False))
                found = learned_texts(tokenizer, ids[:-1].tolist(), weights[:-1])
                self.assertEqual([one[:2] for one in found], expected(family, learned, ends_there))
                for text, _, before in found:
                    self.assertTrue(before.endswith(family.asks), before)

    def test_marked_answers_are_learned(self):
        for name, family in FAMILIES.items():
            self.check(name, family.template)

    def test_answers_without_marks_are_the_same(self):
        for name, family in FAMILIES.items():
            self.check(name, family.plain())

    def test_a_special_token_within_an_answer_does_not_end_it(self):
        for name, family in FAMILIES.items():
            for template in (family.template, family.plain()):
                tokenizer, said = self.tokenizer(name, template), f"a {family.special[-1]}\n{family.special[-1]} \t\n"
                messages = [user("Why?"), answer(said), user("And?"), answer(said)]
                document = Forms(tokenizer).document(messages)
                found = [document.text[begin:end] for begin, end, _ in document.spans]
                with self.subTest(family=name, marks=template != family.plain()):
                    text = family.before + (said.strip() if family.trims else said)
                    self.assertEqual(found, [text + family.end,
                                             family.last_before + text + (family.last_end or family.end)])

    def test_there_are_twenty_conversations_with_calls_of_tools(self):
        self.assertEqual(len(CONVERSATIONS), 20)
        self.assertEqual(sum(any("tool_calls" in one for one in messages) for messages, _, _ in CONVERSATIONS), 4)

    def test_dropped_thinking_is_refused_unless_only_the_last_answer_is_learned(self):
        tokenizer = self.tokenizer("qwen 3", FAMILIES["qwen 3"].plain())
        thinking = [user("a"), answer("<think>\nhard\n</think>\n\nb"),
                    user("c"), answer("<think>\neasy\n</think>\n\nd")]
        with self.assertRaisesRegex(Refused, r"message 2 of 4 \(assistant\): the chat template of .* --learn last"):
            Forms(tokenizer).document({"messages": thinking})
        document = Forms(tokenizer, learn="last").document({"messages": thinking})
        (begin, end, _), = document.spans
        self.assertEqual(document.text[begin:end], "<think>\neasy\n</think>\n\nd<|im_end|>")
        call_first = [user("a"), call(WEATHER, reasoning_content="hard"), result("20"), answer("b"),
                      user("c"), answer("d")]
        with self.assertRaisesRegex(Refused, "message 2 of 6"):
            Forms(tokenizer).document({"messages": call_first, "tools": TOOLS})
        # The text before the last answer is written as in its prompt.
        document = Forms(tokenizer, learn="last").document({"messages": call_first, "tools": TOOLS})
        (begin, end, _), = document.spans
        self.assertEqual(document.text[begin:end], "<think>\n\n</think>\n\nd<|im_end|>")

    def test_a_prefix_that_is_none_is_refused(self):
        template = """{{ messages | length }}
{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
        tokenizer = self.tokenizer("qwen 3", template)
        with self.assertRaisesRegex(Refused, r"message 2 of 2 .* writes the earlier messages differently"):
            Forms(tokenizer, learn="last").document([user("a"), answer("b")])

    def test_a_token_across_the_border_is_the_answers(self):
        tokenizer = self.tokenizer("qwen 3", FAMILIES["qwen 3"].template)
        encoder = Encoder(tokenizer, special_id(tokenizer, python_package.DOCUMENT_END))
        whole = tokenizer("the", add_special_tokens=False)["input_ids"]
        self.assertEqual(len(whole), 1, "the tokenizer has a token for it")
        ids, weights, _ = encoder.encode([Forms(tokenizer).document({"prompt": "x t", "completion": "he"})])[0]
        self.assertEqual(tokenizer.decode([one for one, weight in zip(ids[:-1], weights) if weight]).strip(), "the")
        self.assertEqual(weights[0], 0)

    def test_keys_that_are_not_read_are_refused_by_name(self):
        tokenizer = self.tokenizer("gemma", FAMILIES["gemma"].template)
        for key, value in (("thinking", "hm"), ("tool_calls", [WEATHER]), ("images", ["a.png"]), ("mood", "bad")):
            with self.subTest(key=key), self.assertRaisesRegex(Refused, f'message 2 has "{key}"'):
                Forms(tokenizer).document([user("a"), answer("b", **{key: value})])
        with self.assertRaisesRegex(Refused, r"must be finite and 0 or more, but are \[inf, 0\.5\]"):
            Forms(tokenizer).document([user("a"), answer("b", weight=float("inf"), loss=0.5)])
        with self.assertRaisesRegex(Refused, "the role user asks to be learned"):
            Forms(tokenizer).document([{**user("a"), "train": True}, answer("b")])
        with self.assertRaisesRegex(Refused, r"leaves out what message 2 \(assistant\) says"):
            template = FAMILIES["mistral"].template
            Forms(self.tokenizer("mistral", template)).document([user("a"), answer("unsaid", tool_calls=[WEATHER])])
        Forms(tokenizer).document([user("a"), answer("b", thinking=None, tool_calls=[], weight=None)])

    def test_the_first_answer_without_a_question_is_refused_without_marks(self):
        tokenizer = self.tokenizer("olmo 2", FAMILIES["olmo 2"].plain())
        with self.assertRaisesRegex(Refused, "no message asks for this one"):
            Forms(tokenizer).document([answer("a"), user("b"), answer("c")])
        document = Forms(tokenizer).document([answer("a", weight=0), user("b"), answer("c")])
        self.assertEqual([document.text[begin:end] for begin, end, _ in document.spans], ["c<|endoftext|>"])


if __name__ == "__main__":
    unittest.main()
