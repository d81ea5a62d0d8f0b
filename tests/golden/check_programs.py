#!/usr/bin/env python3
"""Holds what the programs say of trained tiny models against Hugging Face's own model classes, in float64.

Run as `RINGTRAIN_BIN=build/release/bin python check_programs.py` with PyTorch, transformers and h5py; ends with 77
where they are not there. Each model is trained for a few steps, its checkpoint is read into the class, and then
`evaluate --stride` is compared with the strided perplexity of the library's documentation, and `generate` with the
class's own greedy generation. The classes compute norms and rotary angles in float32 whatever the model's dtype, so
meanwhile "float32" means float64."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
try:
    import h5py
    import torch
    import transformers
    from make_golden import compute_in_double
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", "build/release/bin")).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH, STRIDE, NEW_TOKENS = 48, 20, 200
COMMON = ["training.dtype=float64", "training.seq_len=256", "training.global_batch_size=2", "training.steps=3",
          "lr_scheduler.warmup_steps=1", "model.initializer_range=0.2", "optimizer.lr=0.003"]
MODELS = {
    "llama": [],
    "llama, yarn": ["model.rope_scaling.type=yarn", "model.rope_scaling.factor=4",
                    "model.rope_scaling.original_max_position_embeddings=16"],
    "mistral with a window": ["model.architecture=mistral", "model.sliding_window=9",
                              "model.tie_word_embeddings=false"],
    "qwen2": ["model.architecture=qwen2"],
    "qwen3": ["model.architecture=qwen3", "model.head_dim=12"],
}

CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "mistral": ("MistralConfig", "MistralForCausalLM"),
           "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"), "qwen3": ("Qwen3Config", "Qwen3ForCausalLM")}


def make_model(c):
    """Makes a model of transformers from keys of the section `model`."""
    config_class, model_class = CLASSES[c["architecture"]]
    same = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "rms_norm_eps", "tie_word_embeddings"]
    options = {key: c[key] for key in same}
    scaling = dict(c["rope_scaling"])
    kind = scaling.pop("type")
    options["max_position_embeddings"] = 4096
    options["rope_parameters"] = {"rope_type": "default" if kind == "none" else kind, "rope_theta": c["rope_theta"],
                                  **scaling}
    window = c["sliding_window"]
    if c["architecture"].startswith("qwen"):
        options.update(use_sliding_window=window > 0, sliding_window=window or None, max_window_layers=0)
    else:
        options["sliding_window"] = window or None
    config = getattr(transformers, config_class)(**options, attn_implementation="sdpa")
    return getattr(transformers, model_class)(config).double()


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def settings(values):
    return [word for value in values for word in ("--set", value)]


def train(folder, name, values):
    """Trains a tiny model. Return its run's folder and Hugging Face's model with its weights."""
    output = folder / name.replace(" ", "-").replace(",", "")
    run("train", "--config", ROOT / "configs" / "tiny.yaml", "--output", output,
        *settings([f"data.train={folder / 'corpus.h5'}", *COMMON, *values]))
    config = {"architecture": "llama", "vocab_size": 257, "hidden_size": 32, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64,
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "sliding_window": 0,
              "rope_scaling": {"type": "none"}}
    for value in values:
        key, text = value.removeprefix("model.").split("=")
        word = json.loads(text) if text[0].isdigit() or text in ("true", "false") else text
        if key.startswith("rope_scaling."):
            config["rope_scaling"][key.removeprefix("rope_scaling.")] = word
        else:
            config[key] = word
    model = make_model(config)
    state = h5py.File(next((output / "checkpoints").glob("*/state-*-of-*.h5")))["weights"]
    for parameter_name, parameter in model.named_parameters():
        parameter.data = torch.tensor(state[parameter_name][...])
    return output, model.eval()


def documents(path):
    """Return the token ids of each validation document."""
    file = h5py.File(path)
    offsets = file["document_offsets"][...]
    return [torch.tensor(file["tokens"][offsets[d]:offsets[d + 1]].astype("int64"))
            for d in range(int(file.attrs["first_validation_document"]), len(offsets) - 1)]


@torch.no_grad()
def strided_nll(model, texts):
    """The recipe of transformers' page on perplexity. Its mean of window means becomes the mean over tokens: the page
    counts a later window's targets as one fewer than its loss is the mean of."""
    nll, count = 0.0, 0
    for ids in texts:
        done = 0
        for begin in range(0, len(ids), STRIDE):
            end = min(begin + LENGTH, len(ids))
            window = ids[None, begin:end]
            labels = window.clone()
            labels[:, :-(end - done)] = -100
            scored = int((labels[:, 1:] != -100).sum())
            if scored:
                nll += model(window, labels=labels).loss.item() * scored
            count += scored
            done = end
            if end == len(ids):
                break
    return nll / count, count


def check_stride(folder, name, output, model):
    expected, count = strided_nll(model, documents(folder / "corpus.h5"))
    for mesh in ("1x1", "2x2", "1x3"):
        run("evaluate", "--checkpoint", output, "--data", folder / "corpus.h5", "--context-lengths", LENGTH, "--stride",
            STRIDE, "--mesh", mesh, "--output", folder / "stride.json")
        result = json.loads((folder / "stride.json").read_text())
        nll = result["results"][0]["nll"]
        print(f"{name}: evaluate --stride {STRIDE} on {mesh}: {nll:.12f}, off by {abs(nll - expected):.1e}")
        assert result["stride"] == STRIDE and result["target_tokens"] == count
        assert abs(nll - expected) < 1e-9 * expected


@torch.no_grad()
def check_generate(folder, name, output, model):
    prompt = documents(folder / "corpus.h5")[0][:20]
    made = model.generate(prompt[None], max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=256, pad_token_id=256)
    expected = made[0, len(prompt):].tolist()
    if expected[-1] == 256:
        expected.pop()
    for mesh in ("1x1", "1x2", "1x3"):
        text = run("generate", "--checkpoint", output, "--tokens", ",".join(map(str, prompt.tolist())),
                   "--max-new-tokens", NEW_TOKENS, "--mesh", mesh)
        tokens = [int(word) for word in text.split(",")]
        print(f"{name}: generate on {mesh}: {len(tokens)} tokens, {len(set(tokens))} different ones")
        assert tokens == expected


def main():
    compute_in_double()
    with tempfile.TemporaryDirectory(prefix="programs-") as temporary:
        folder = pathlib.Path(temporary)
        texts = folder / "texts"
        texts.mkdir()
        for i, path in enumerate(sorted((ROOT / "framework").glob("*.h"))[:20]):
            (texts / f"{i}.txt").write_bytes(path.read_bytes()[:300 + 37 * i])
        run("prepare", "--input", texts, "--output", folder / "corpus.h5")
        for name, values in MODELS.items():
            output, model = train(folder, name, values)
            check_stride(folder, name, output, model)
            check_generate(folder, name, output, model)


if __name__ == "__main__":
    main()
