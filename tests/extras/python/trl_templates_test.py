#!/usr/bin/env python3
"""Every chat template of the installed package trl: each conversation is rendered as in transformers, or refused with a
message. If a template and its form for training (with {% generation %}) write the same text, the same parts are
learned. The templates' texts remain in that package. Skipped (77) if it is not installed."""
import importlib.util
import pathlib
import re
import sys
import tempfile

import python_package  # first: it finds the package
from masks_test import TOOLS, WEATHER, answer, call, result, system, user
from ringtrain_data import Refused
from ringtrain_data.forms import Forms
from ringtrain_data.tokens import Encoder, load_tokenizer, special_id

CONVERSATIONS = [
    [user("Why?"), answer("So.")],
    [user("Why?"), answer("So."), user("Why not?"), answer("Then not.")],
    [system("Be short."), user("Why?"), answer("So."), user("And?"), answer("No more.", weight=0)],
    [user("Why?"), answer("<think>\nhard\n</think>\n\nSo."), user("And?"), answer("<think>\neasy\n</think>\n\nNo.")],
    [user("Why?"), answer("So.", reasoning_content="hard"), user("And?"), answer("No.", reasoning_content="easy")],
    [user("Weather?"), call(WEATHER), result("20"), answer("Warm."), user("Thanks."), answer("Fine.")],
    [user("Weather?"), answer("Let me see.", tool_calls=[WEATHER]), result("20"), answer("Warm.")],
]


def special_tokens(text):
    """Return what looks like the name of a token in a template."""
    return sorted(set(re.findall(r"<[|｜][^<>{}'\" ]+[|｜]>|<(?:bos|eos|s|/s|(?:start|end)_of_turn|end_of_utterance)>|"
                                 r"\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]", text))) or ["<s>", "</s>"]


def outcome(tokenizer, messages, learn):
    """Return the text and its learned spans, or the message of the refusal."""
    row = {"messages": messages, "tools": TOOLS if any("tool_calls" in one for one in messages) else None}
    try:
        document = Forms(tokenizer, learn=learn).document(row)
    except Refused as error:
        return str(error)
    encoder = Encoder(tokenizer, special_id(tokenizer, python_package.DOCUMENT_END))
    ids, weights, _ = encoder.encode([document])[0]
    assert tokenizer.decode(ids[:-1].tolist()) == document.text, document.text
    assert all(0 <= begin < end <= len(document.text) for begin, end, _ in document.spans), document.spans
    assert (weights > 0).any()
    return document.text, document.spans


def main():
    found = importlib.util.find_spec("trl")
    folder = pathlib.Path(found.origin).parent / "chat_templates" if found else None
    if folder is None or not folder.is_dir():
        print("SKIPPED: no package trl with chat_templates is here")
        return 77
    templates = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))}
    rendered = refused = agreed = 0
    with tempfile.TemporaryDirectory() as temporary:
        outcomes = {}
        for name, text in templates.items():
            special = special_tokens(text)
            eos = next((one for one in special if re.search(r"end|eos|eot|/s", one)), special[-1])
            made = python_package.make_tokenizer(f"{temporary}/{name}", special, text, special[0], eos)
            tokenizer = load_tokenizer(made)
            outcomes[name] = [outcome(tokenizer, messages, learn) for messages in CONVERSATIONS
                              for learn in ("answers", "last")]
        for name, found in outcomes.items():
            rendered += sum(isinstance(one, tuple) for one in found)
            refused += sum(isinstance(one, str) for one in found)
            for one in found:
                assert isinstance(one, tuple) or re.search("chat template of|not text", one), f"{name}: {one}"
        for name in templates:
            for plain, marked in zip(outcomes[name], outcomes.get(f"{name}_training", [])):
                if isinstance(plain, tuple) and isinstance(marked, tuple) and plain[0] == marked[0]:
                    # This one does not prompt with all the text that it writes before an answer that follows a tool.
                    same = plain[1] == marked[1]
                    assert same or name == "diffusion_gemma", f"{name}: {plain}\n{marked[1]}"
                    agreed += same
    print(f"{len(templates)} templates: {rendered} conversations rendered, {refused} refused in a sentence; "
          f"{agreed} the same with marks and without")
    if "-v" in sys.argv:
        for name, found in outcomes.items():
            print(name, [one if isinstance(one, str) else "ok" for one in found])
    assert rendered > refused > 0 and agreed >= 100, (rendered, refused, agreed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
