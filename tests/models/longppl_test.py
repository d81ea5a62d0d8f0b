#!/usr/bin/env python3
"""Compares `evaluate --longppl` with the package longppl 0.3.0 of PyPI: the same texts and the same model must give the
same key tokens, and longppl and ppl to a relative 1e-6.

The model is a tiny Llama of bytes, trained here until its context matters, and exported. longppl runs it in
transformers, in float64. Texts are documents of ASCII and of letters of two to four bytes; windows end within and at
the end of a text. longppl itself fails if a text's last window scores only one token (its loss then has no dimension),
so such texts are left out.

RINGTRAIN_BIN names the folder of the programs. Skipped (77) if PyTorch, transformers, or longppl is not installed;
RINGTRAIN_PYTHON names another interpreter than the system's."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import environment  # noqa: E402

environment.use()
try:
    import torch
    import transformers
    from longppl import longppl
except ImportError as error:
    environment.skip(error)

import transformers_matrix as matrix  # noqa: E402

BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TOLERANCE = 1e-6
CONFIG = """
model: {{hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 64,
        max_position_embeddings: 512, initializer_range: 0.3}}
data: {{train: {data}, packing: documents}}
mesh: {{threads_per_rank: 1}}
training: {{seq_len: 256, global_batch_size: 2, steps: {steps}, dtype: float64}}
optimizer: {{lr: 3.0e-3}}
"""


def run(program, *arguments):
    done = subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{program} {arguments}\n{done.stdout}\n{done.stderr}"


def texts():
    """Words that are repeated: a later one can be predicted from the first. Lengths differ."""
    draw = random.Random(29)
    alphabets = ("abcdefgh", "aéßü", "αβγ字", "ab😀é")
    found = []
    for number in range(8):
        words = ["".join(draw.choices(alphabets[number % 4], k=draw.randrange(2, 6))) for _ in range(12)]
        found.append(" ".join(draw.choices(words, k=10 + 5 * number)))
    return found


class ByteTokenizer:
    """The methods of a tokenizer that longppl needs, for tokens that are the bytes of a text: ids, and the character of
    each byte. begin: the token before a text, if any, when special tokens are requested."""

    def __init__(self, begin):
        self.begin = begin

    def __call__(self, text, add_special_tokens=True, **_):
        begins = self.begin is not None and add_special_tokens
        ids, offsets = ([self.begin], [(0, 0)]) if begins else ([], [])
        for place, character in enumerate(text):
            for byte in character.encode():
                ids.append(byte)
                offsets.append((place, place + 1))
        return {"input_ids": torch.tensor([ids]), "offset_mapping": torch.tensor([offsets])}


def double(folder):
    """The folder's model, in float64 throughout."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    state = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    with matrix.double_for_single():
        model = type(loaded)(loaded.config).double()  # rebuilt: the first one's frequencies are float32
        model.load_state_dict(state)
        return model.double().eval()


def compare(folder, number, text, model, settings, mesh, begin):
    """Returns the number of the text's key tokens."""
    length = len(text.encode())
    data, first = ("", "none") if begin is None else ("-begin", begin)
    run("evaluate", "--checkpoint", f"{folder}/model", "--data", f"{folder}/{number}{data}.h5", "--part", "whole", "--mesh",
        mesh, "--context-lengths", f"16,{length + (begin is not None)}", "--begin-token", first, "--target-tokens", 8,
        "--target-blocks", 1, "--dtype", "float64", "--longppl",
        "--trunc-len", settings["trunc_len"], "--sliding-window", settings["sliding_window"], "--alpha",
        settings["alpha"], "--beta", settings["beta"], "--output", f"{folder}/found.json")
    with open(f"{folder}/found.json", encoding="utf-8") as file:
        ours, = json.load(file)["longppl"]["documents"]
    with matrix.double_for_single():
        tokenizer = ByteTokenizer(begin)
        theirs = longppl.compute_longppl(text, model, model, tokenizer, tokenizer, **settings)
    assert ours["n_token"] == theirs["n_token"] == length, (ours, theirs)
    assert ours["n_key_token"] == (theirs["n_key_token"] or 0), (number, ours, theirs)
    for name in ("longppl", "ppl"):
        assert (ours[name] is None) == (theirs[name] is None), (number, name, ours, theirs)
        if ours[name] is not None:
            difference = abs(ours[name] / float(theirs[name]) - 1)
            worst[name] = max(worst[name], difference)
            assert difference <= TOLERANCE, (number, name, ours, theirs)
    return ours["n_key_token"]


def compare_by_tokenizer(folder):
    """A tokenizer.json whose post-processor begins each text: by default, evaluate does what longppl does with the ids
    of AutoTokenizer."""
    tokenizer = json.loads((ROOT / "tests/tokenizers/tiny/byte_level.json").read_text())
    begin = {**tokenizer["added_tokens"][0], "id": 601, "content": "<s>"}
    tokenizer["added_tokens"].append(begin)
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, TEXT],
        "pair": [TEXT, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [601], "tokens": ["<s>"]}}}
    own = pathlib.Path(folder) / "tokenizer"
    own.mkdir()
    (own / "tokenizer.json").write_text(json.dumps(tokenizer))
    (own / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    text = (ROOT / "LICENSE").read_text()[:900]
    (own / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    run("prepare", "--input", own / "text.jsonl", "--tokenizer", own, "--output", own / "text.h5",
        "--validation-fraction", "0")
    sized = CONFIG.format(data=own / "text.h5", steps=30).replace("model: {", "model: {vocab_size: 602, ")
    (own / "run.yaml").write_text(sized.replace("seq_len: 256", "seq_len: 128"))
    run("train", "--config", own / "run.yaml", "--output", own / "run")
    run("export", "--checkpoint", own / "run", "--output", own / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(own)
    length = len(theirs(text)["input_ids"])
    run("evaluate", "--checkpoint", own / "model", "--data", own / "text.h5", "--part", "whole", "--dtype", "float64",
        "--context-lengths", length, "--target-tokens", 8, "--target-blocks", 1, "--longppl", "--trunc-len", 32,
        "--sliding-window", 16, "--alpha", 0.5, "--beta", -9, "--output", own / "found.json")
    found, = json.loads((own / "found.json").read_text())["longppl"]["documents"]
    model = double(own / "model")
    with matrix.double_for_single():
        right = longppl.compute_longppl(text, model, model, theirs, theirs, trunc_len=32, sliding_window=16, alpha=0.5,
                                        beta=-9.0)
    assert found["n_token"] == right["n_token"] == length - 1, (found, right)
    assert found["n_key_token"] == right["n_key_token"] > 20, (found, right)
    for name in ("longppl", "ppl"):
        assert abs(found[name] / float(right[name]) - 1) <= TOLERANCE, (name, found, right)
    print(f"a tokenizer that begins texts: {found['n_key_token']} key tokens of {length}, longppl {found['longppl']:.6f}")


worst = {"longppl": 0.0, "ppl": 0.0}


def main():
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        for name, some in [("all", texts()), *((number, [text]) for number, text in enumerate(texts()))]:
            for kind, behind in (("", ""), ("-begin", "!")):
                with open(f"{folder}/{name}{kind}.jsonl", "w", encoding="utf-8") as file:
                    file.writelines(json.dumps({"text": text + behind}) + "\n" for text in some)
                run("prepare", "--input", f"{folder}/{name}{kind}.jsonl", "--output", f"{folder}/{name}{kind}.h5",
                    "--validation-fraction", "0")
        with open(f"{folder}/run.yaml", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(data=f"{folder}/all.h5", steps=30))
        run("train", "--config", f"{folder}/run.yaml", "--output", f"{folder}/run")
        run("export", "--checkpoint", f"{folder}/run", "--output", f"{folder}/model")
        model = double(f"{folder}/model")
        # alpha above 0: the first short window is the beginning of the text, where only rounding differs. 256, which
        # ends documents, begins texts in some cases, which end before the last byte of their document.
        for mesh, begin, settings in (
                ("1x1", None, {"trunc_len": 40, "sliding_window": 13, "alpha": 0.05, "beta": -2.0}),
                ("1x2", None, {"trunc_len": 24, "sliding_window": 30, "alpha": 0.2, "beta": -1.0}),
                ("2x1", None, {"trunc_len": 60, "sliding_window": 7, "alpha": 0.01, "beta": -9.0}),
                ("1x1", 256, {"trunc_len": 40, "sliding_window": 13, "alpha": 0.05, "beta": -2.0}),
                ("1x2", 256, {"trunc_len": 24, "sliding_window": 30, "alpha": 0.01, "beta": -9.0})):
            tokens = [len(text.encode()) + (begin is not None) for text in texts()]
            counts = [compare(folder, number, text, model, settings, mesh, begin) for number, text in enumerate(texts())
                      if (tokens[number] - settings["trunc_len"]) % settings["sliding_window"] != 1
                      and tokens[number] > settings["trunc_len"]]
            print(f"{mesh}, begin token {begin}, {settings}: {sum(counts)} key tokens of {len(counts)} texts, as longppl has them; longppl "
                  f"at most {worst['longppl']:.1e} apart, ppl {worst['ppl']:.1e}", flush=True)
            assert len(counts) > 4
            keys = sum(counts)
            assert keys > 20, keys
        compare_by_tokenizer(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
