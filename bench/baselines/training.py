"""Training steps of a model in PyTorch on the CPU, float32: training.py gpt2|llama eager|compiled.

{"kind": "steps", "count": n, "sequences": B, "length": T} -> {"seconds": median of n steps, "loss": of the last}.
A step is what ours is: batch, forward, backward, clipping, AdamW, gradients to none.
"""
import importlib
import statistics
import sys
import time

import torch

from lines import serve

torch.manual_seed(1)
torch.set_num_threads(torch.get_num_threads())  # as OMP_NUM_THREADS says
name, mode = sys.argv[1:]
model = importlib.import_module(name).Model()
loss_of = torch.compile(model) if mode == "compiled" else model
decayed = [x for x in model.parameters() if x.dim() == 2]
others = [x for x in model.parameters() if x.dim() != 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=6e-6, betas=(0.9, 0.95), fused=True)  # one pass over the parameters, as ours


def step(sequences, length):
    start = time.perf_counter()
    tokens = torch.randint(model.vocabulary, (sequences, length + 1))
    loss = loss_of(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - start, loss.item()


def answer(question):
    steps = [step(question["sequences"], question["length"]) for _ in range(question["count"])]
    return {"seconds": statistics.median(seconds for seconds, _ in steps), "loss": steps[-1][1]}


serve(answer)
