# The tokenizer next to a token file (FILE.h5.tokenizer/), which runs and exports use, and its hash. Only ringtrain
# computes the hash: its own `prepare` is called for it, if that program is found.
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

KEPT = {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"}


# Return the path of a program of ringtrain: in RINGTRAIN_BIN, on the PATH, or in this checkout's build; or None.
def program(name):
    here = pathlib.Path(__file__).resolve().parents[3] / "build/release/bin"
    folders = [os.environ.get("RINGTRAIN_BIN", ""), *os.environ.get("PATH", "").split(os.pathsep), str(here)]
    return shutil.which(name, path=os.pathsep.join(one for one in folders if one))


# Return the hash of this tokenizer in token files of `prepare`, or None and why it is unknown.
def tokenizer_hash(folder, end_of_document):
    if not (prepare := program("prepare")):
        return None, "no ringtrain program is found (RINGTRAIN_BIN names its folder)"
    with tempfile.TemporaryDirectory() as temporary:
        text, output = pathlib.Path(temporary, "text.txt"), pathlib.Path(temporary, "text.h5")
        text.write_text("a text\n", encoding="utf-8")
        command = [prepare, "--input", text, "--tokenizer", folder, "--document-end", end_of_document,
                   "--validation-fraction", "0", "--output", output]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            return None, (made.stderr.strip().splitlines() or ["prepare failed"])[-1]
        return json.loads(pathlib.Path(f"{output}.manifest.json").read_text("utf-8")).get("tokenizer_hash"), None


# Copy a tokenizer's files, with the tokens that end texts and answers as generation_config.json.
def keep_tokenizer(folder, to, chat_template, end_ids):
    os.mkdir(to)
    for name in KEPT & set(os.listdir(folder)):
        shutil.copyfile(os.path.join(folder, name), os.path.join(to, name))
    if chat_template:
        shutil.copyfile(chat_template, os.path.join(to, "chat_template.jinja"))
    ends = {"eos_token_id": end_ids if len(end_ids) > 1 else end_ids[0]}
    pathlib.Path(to, "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n", "utf-8")
