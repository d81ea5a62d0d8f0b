#!/usr/bin/env python3
"""The results of transformers for a folder: the nll of tokens, or the greedily generated tokens. real_model_test.py
runs it, under transformers 5 and 4.

usage: transformers_reference.py REQUEST.json ANSWER.json

The request: {"model": FOLDER, "plain": true to load it as users do, and "texts": [{"tokens": [...], "first": N}] for the
sum of the nll of tokens N and after of each text, given those before them; or "prompt": [...], "new_tokens": N}.
Classes compute norms and rotary angles in float32 whatever the model's dtype, so unless it is loaded as users do,
"float32" means float64."""
import json
import sys

import torch
import transformers
from safetensors.torch import load_file


def load(folder):
    """Returns the model in float64, whatever its classes specify."""
    state = {name: tensor.double() for name, tensor in load_file(f"{folder}/model.safetensors").items()}
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    config = transformers.AutoConfig.from_pretrained(folder)
    config.dtype = None
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())
    return model


def plain_load(folder):
    """Returns the model as users load it, but in float64: in float32, PyTorch's sums are up to 2e-5 off."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval().double()


def nll_sums(model, texts):
    sums = []
    for text in texts:
        tokens = torch.tensor(text["tokens"])
        with torch.no_grad():
            logits = model(tokens[None, :-1], use_cache=False).logits[0]
        each = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")
        sums.append(each[text["first"] - 1:].double().sum().item())
    return sums


def greedy(model, prompt, new_tokens):
    """Returns the tokens, and the smallest difference to the second best one."""
    tokens, closest, cache = torch.tensor([prompt]), float("inf"), None
    said = []
    for _ in range(new_tokens):
        with torch.no_grad():
            out = model(tokens, past_key_values=cache, use_cache=True)
        best = out.logits[0, -1].topk(2)
        closest = min(closest, (best.values[0] - best.values[1]).item())
        cache = out.past_key_values
        said.append(int(best.indices[0]))
        tokens = torch.tensor([[said[-1]]])
    return said, closest


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    transformers.logging.set_verbosity_error()
    model = plain_load(request["model"]) if request.get("plain") else load(request["model"])
    answer = {"version": transformers.__version__}
    if "texts" in request:
        answer["nll_sums"] = nll_sums(model, request["texts"])
    else:
        answer["tokens"], answer["closest"] = greedy(model, request["prompt"], request["new_tokens"])
    with open(sys.argv[2], "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
