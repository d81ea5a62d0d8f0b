#!/usr/bin/env python3
"""Runs docs/lora.md, with the smaller sizes of its marks: a folder as on a hub, with parquet of conversations, and a
random Llama with a tokenizer like Gemma's. The tuned model answers as it learned, turn by turn, and transformers gives
the same text; without PyTorch, that part is skipped with a message. RINGTRAIN_BIN names the folder of the programs."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import python_package  # first: it finds the package
import numpy
import pyarrow.parquet
import safetensors.numpy
from families import FAMILIES

sys.path.insert(0, str(python_package.ROOT / "tests/docs"))
import pages  # noqa: E402

BIN = pathlib.Path(os.environ.get("RINGTRAIN_BIN", python_package.ROOT / "build/release/bin"))
QUESTIONS = {"What is the capital of France?": "Paris, of course.", "Say it twice.": "It, it.",
             "Who are you?": "A small model: très petit."}


def make_base(folder):
    """Write a model's folder: random weights, and a tokenizer whose texts begin with <bos>."""
    family = FAMILIES["gemma"]
    decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                {"type": "ByteFallback"}, {"type": "Fuse"}]}
    python_package.make_tokenizer(folder, [*family.special, "<eos>"], family.plain(), "<bos>", "<eos>", begins="<bos>",
                                  base="sentencepiece.json")
    content = json.loads((folder / "tokenizer.json").read_text("utf-8")) | {"decoder": decoder}
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    tokenizer = python_package.transformers.AutoTokenizer.from_pretrained(folder)
    size, ids = len(tokenizer), tokenizer.convert_tokens_to_ids(["<bos>", "<eos>"])
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
              "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
              "bos_token_id": ids[0], "eos_token_id": ids[1], "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    draw = numpy.random.default_rng(1)
    shapes = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
              "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64),
              "mlp.down_proj": (64, 128)}
    tensors = {"model.embed_tokens": draw.normal(0, 0.2, (size, 64)), "model.norm": numpy.ones(64)}
    for layer in range(2):
        tensors |= {f"model.layers.{layer}.{name}": draw.normal(0, 0.1, shape) for name, shape in shapes.items()}
        tensors |= {f"model.layers.{layer}.{name}_layernorm": numpy.ones(64) for name in ("input", "post_attention")}
    safetensors.numpy.save_file({f"{name}.weight": value.astype("f4") for name, value in tensors.items()},
                                folder / "model.safetensors", {"format": "pt"})


def make_data(folder):
    """Write a data set of two files, with a card."""
    (folder / "data").mkdir(parents=True)
    rows = [{"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}], "source": "us"}
            for asked, said in QUESTIONS.items()]
    both = [{"messages": rows[0]["messages"] + rows[2]["messages"], "source": "us"}]
    for i in range(2):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(7 * (rows + both)),
                                    folder / f"data/train-0000{i}-of-00002.parquet")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Questions\n")


class LoraPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make_base(self.folder / "base")
        make_data(self.folder / "chats")
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/bin").symlink_to(BIN)

    def run_here(self, command, **how):
        """Return what a command prints to its standard output."""
        made = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, env=os.environ | {
            "PYTHONPATH": str(python_package.ROOT / "extras/python"), "RINGTRAIN_BIN": str(BIN),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}, **how)
        self.assertEqual(made.returncode, 0, f"{command}\n{made.stdout}\n{made.stderr}")
        return made.stdout

    def talk(self, checkpoint, *lines):
        return self.run_here([sys.executable, "-m", "ringtrain_data", "chat", "--checkpoint", checkpoint,
                              "--max-tokens", "30"], input="".join(line + "\n" for line in lines))

    @unittest.skipUnless((BIN / "train").exists(), "the programs are not built")
    def test_the_page(self):
        printed, answer = {}, QUESTIONS["What is the capital of France?"] + "\n"
        for block in pages.blocks(python_package.ROOT / "docs/lora.md"):
            if block.mark("file"):
                (self.folder / block.mark("file")).write_text(block.small())
            elif block.language == "sh":
                printed[block.text.split("\n")[0].split()[-1]] = self.run_here(["bash", "-euc", block.text])
            elif block.language == "python":
                self.in_transformers(block.text, answer)
        self.assertIn("documents              56, 6 for validation", printed["chats.h5"])
        self.assertIn(f"[[{answer.strip()}<end_of_turn>]]", printed["chats.h5"])
        self.assertEqual(printed["runs/tuned"], answer)
        # In the folders that the page makes, and with more than one turn.
        self.assertEqual(self.talk("adapters", "What is the capital of France?", "Who are you?"),
                         answer + QUESTIONS["Who are you?"] + "\n")
        self.assertEqual(self.talk("merged", "Say it twice."), "It, it.\n")

    def in_transformers(self, script, answer):
        try:
            import torch  # noqa: F401
        except ImportError:
            print("without PyTorch: transformers' own answer is left out")
            return
        (self.folder / "answer.py").write_text(script)
        self.assertEqual(self.run_here([sys.executable, "answer.py"]), answer)


if __name__ == "__main__":
    unittest.main()
