# Conversations with a model: its chat template formats the messages, and `generate` answers, turn by turn.
import contextlib
import pathlib
import subprocess
import sys

from . import tokenizer_files
from .conversations import ChatTemplate
from .rows import Refused
from .tokens import load_tokenizer, special_id


# Return the folder with a checkpoint's tokenizer: a model's own folder, or the one that a run keeps.
def tokenizer_folder(checkpoint):
    path = pathlib.Path(checkpoint).absolute()
    folders = (path, path / "tokenizer", path.parent.parent / "tokenizer")
    return next((one for one in folders if (one / "tokenizer.json").is_file()), path)


# Print the model's answer to these tokens, and return it.
def answer(command, tokenizer, prompt):
    made = subprocess.run(command, input=" ".join(map(str, prompt)), capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Refused(made.stderr.strip(), made.returncode)
    ids = [int(one) for one in made.stdout.split(",") if one.strip()]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    print(text, flush=True)
    if (why := made.stderr.strip().rpartition("; ")[2]) != "the document ended":
        print(f"(cut off: {why})", file=sys.stderr)
    return text


# Answer each line of the standard input. flags: additional ones for generate.
def chat(checkpoint, system, max_tokens, generate, chat_template, template_options, flags):
    if not (generate := generate or tokenizer_files.program("generate")):
        raise Refused("no program generate is found; name it with --generate, or its folder with RINGTRAIN_BIN", 2)
    tokenizer = load_tokenizer(tokenizer_folder(checkpoint), chat_template, "--checkpoint")
    template = ChatTemplate(tokenizer, options=template_options)
    command = [generate, "--checkpoint", checkpoint, "--tokens-file", "-", "--max-new-tokens", str(max_tokens), *flags]
    if end := template.end_of_answers():
        command += ["--stop-token", str(special_id(tokenizer, end))]
    messages = [{"role": "system", "content": system}] if system else []
    sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(EOFError):
        while True:
            print("> " if sys.stdin.isatty() else "", end="", file=sys.stderr, flush=True)
            messages.append({"role": "user", "content": input()})
            text = template.render(messages, None, template.options, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            messages.append({"role": "assistant", "content": answer(command, tokenizer, ids)})
