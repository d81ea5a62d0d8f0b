"""Training steps of a model in PyTorch on the CPU:
training.py gpt2|llama eager|compiled float32|bfloat16 blas|onednn [longest sequence]

{"kind": "steps", "count": n, "sequences": B, "length": T} -> {"seconds": median of n steps, "loss": of the last}.
A step is the same as ours: batch, forward, backward, clipping, AdamW, gradients set to none. bfloat16: with autocast;
weights and sums remain float32. onednn: float32 products by oneDNN, which the package contains in addition to its BLAS
and normally uses for other dtypes.
"""
import importlib
import statistics
import sys
import time

import torch
from torch import nn

from lines import serve


def product(x, w):
    """x [T, I] and w [O, I]: x w^T, by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")


class OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(context, x, w):
        context.save_for_backward(x, w)
        return product(x, w)

    @staticmethod
    def backward(context, dy):
        x, w = context.saved_tensors
        rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        return product(dy, w.t().contiguous()), product(dy_rows.t().contiguous(), rows.t().contiguous())


def onednn_linear(layer, x):
    y = OneDnnLinear.apply(x, layer.weight)
    return y if layer.bias is None else y + layer.bias


torch.manual_seed(1)
torch.set_num_threads(torch.get_num_threads())  # from OMP_NUM_THREADS
name, mode, dtype, backend, *longest = sys.argv[1:]
if backend == "onednn":
    nn.Linear.forward = onednn_linear
model = importlib.import_module(name).Model(*map(int, longest))
loss_of = torch.compile(model) if mode == "compiled" else model
decayed = [x for x in model.parameters() if x.dim() == 2]
others = [x for x in model.parameters() if x.dim() != 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=6e-6, betas=(0.9, 0.95), fused=True)  # one pass over the parameters, like ours


def step(sequences, length):
    start = time.perf_counter()
    tokens = torch.randint(model.vocabulary, (sequences, length + 1))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
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
