#!/usr/bin/env python3
"""Folders that `export` writes, loaded by transformers: the same weights, config and logits as those they came from.

RINGTRAIN_BIN names the folder of the programs. Skipped (77) where PyTorch or transformers is not installed; another
interpreter than the system's is named by RINGTRAIN_PYTHON."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import named_python  # noqa: E402

named_python.use()
try:
    import torch
    import transformers
except ImportError as error:
    named_python.skip(error)

FOLDERS = pathlib.Path(__file__).resolve().parent / "folders"
BIN = pathlib.Path(os.environ["RINGTRAIN_BIN"])
KEYS = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "n_inner", "n_positions", "max_position_embeddings", "sliding_window",
        "rms_norm_eps", "layer_norm_epsilon", "rope_parameters", "tie_word_embeddings", "eos_token_id", "architectures"]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def check(name, output):
    command = [BIN / "export", "--checkpoint", FOLDERS / name, "--output", output, "--max-shard-size", "20KB"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    written = load(output)
    source = load(FOLDERS / name)
    for (ours, value), (theirs, other) in zip(written.state_dict().items(), source.state_dict().items(), strict=True):
        assert ours == theirs and torch.equal(value, other), f"{name}: {ours} is not {theirs}"
    for key in KEYS:
        value, other = getattr(written.config, key, None), getattr(source.config, key, None)
        if key == "n_inner" and other is None:
            other = 4 * source.config.n_embd if value is not None else None
        if key == "head_dim" and other is None and value is not None:  # of Qwen2, whose class has no such key
            other = source.config.hidden_size // source.config.num_attention_heads
        assert value == other, f"{name}: {key} is {value}, was {other}"
    tokens = torch.arange(40)[None] * 7 % 48
    with torch.no_grad():
        assert torch.equal(written(tokens).logits, source(tokens).logits), name
    print(f"{name}: {len(written.state_dict())} tensors, transformers {transformers.__version__}")


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for folder in sorted(FOLDERS.iterdir()):
        with tempfile.TemporaryDirectory() as temporary:
            check(folder.name, os.path.join(temporary, "out"))


if __name__ == "__main__":
    main()
