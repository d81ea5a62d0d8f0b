#!/usr/bin/env python3
"""Makes tests/models/generated.json: transformers' greedy text, in float64, with the models of folders/.

Run as `python make_generated.py` with PyTorch and transformers, after make_folders.py; neither the build nor the tests
need it. The configs are those of the folders except for two keys (CHANGES), so that 200 tokens fit and none ends the
text. Each token comes from a forward pass over all tokens before it, without a cache."""
import json
import os

import torch

import make_folders

CHANGES = {"max_position_embeddings": 512, "eos_token_id": None}
PROMPT, NEW = [5, 17, 3, 40, 22, 9, 31], 200


def greedy(name, kind, state):
    config_class, model_class = make_folders.classes(kind)
    config = config_class.from_pretrained(os.path.join(make_folders.HERE, name))
    config.dtype = None
    learned = kind == "GPT2"  # a table of positions, which cannot grow
    config.eos_token_id = None
    if not learned:
        config.max_position_embeddings = CHANGES["max_position_embeddings"]
    model = model_class(config).eval()
    model.load_state_dict(state, strict=False)
    if config.tie_word_embeddings:
        model.tie_weights()
    tokens, closest = list(PROMPT), 1.0
    for _ in range(min(NEW, config.n_positions - len(PROMPT)) if learned else NEW):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = logits.topk(2).values
        closest = min(closest, (best[0] - best[1]).item())
        tokens.append(int(logits.argmax()))
    print(f"{name}: {len(set(tokens))} different tokens; the second best was never closer than {closest:.1e}")
    assert closest > 1e-9
    return tokens[len(PROMPT):]


if __name__ == "__main__":
    states = {name: make_folders.state_of(os.path.join(make_folders.HERE, name)) for name in make_folders.MODELS}
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    said = {name: greedy(name, make_folders.MODELS[name][0], state) for name, state in states.items()}
    with open(os.path.join(os.path.dirname(make_folders.HERE), "generated.json"), "w") as file:
        file.write(json.dumps({"changes": CHANGES, "prompt": PROMPT, "tokens": said}) + "\n")
