"""PyTorch's scaled_dot_product_attention, and its matrix product, on the CPU: our compare_worker's questions."""
import functools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from lines import serve, timed


@functools.cache
def problem(batch, length, heads, head, dtype):
    """q, k, v and dout, contiguous [B, H, S, D]."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(batch, heads, length, head, generator=generator).to(dtype) for _ in range(4)]
    for x in tensors[:3]:
        x.requires_grad_()
    return tensors


@functools.cache
def operands(size, dtype):
    return torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)


def errors(seed, length, heads, head, dtype):
    """Return the relative error (root mean square) of out, dq, dk, and dv, causal, against the plain formulas in
    double, computed by blocks of queries to save memory. All inputs are drawn from a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, dout = (torch.randn(1, heads, length, head, generator=generator).to(dtype) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    found = [out.detach(), *torch.autograd.grad(out, leaves, dout)]
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    out_blocks, sums = [], [torch.zeros_like(x) for x in exact]
    for first in range(0, length, 512):
        last = min(first + 512, length)
        keys, values = (x[:, :, :last] for x in exact[1:])
        scores = exact[0][:, :, first:last] @ keys.transpose(2, 3) / head**0.5
        hidden = torch.arange(last)[None, :] > torch.arange(first, last)[:, None]
        block = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values
        out_blocks.append(block.detach())
        for total, share in zip(sums, torch.autograd.grad(block, exact, dout[:, :, first:last].double())):
            total += share
    return {name: ((x.double() - y).norm() / y.norm()).item()
            for name, x, y in zip(("out", "dq", "dk", "dv"), found, [torch.cat(out_blocks, 2), *sums])}


def answer(question):
    torch.set_num_threads(question["threads"])
    dtype = getattr(torch, question.get("dtype", "float32"))
    if question["kind"] == "errors":
        return errors(question["seed"], question["S"], question["H"], question["D"], dtype)
    if question["kind"] == "product":
        x, w = operands(question["size"], dtype)
        with torch.no_grad():
            return timed(question["seconds"], 2 * question["size"] ** 3, lambda: torch.nn.functional.linear(x, w))
    q, k, v, dout = problem(question["B"], question["S"], question["H"], question["D"], dtype)
    causal = question["causal"]
    flops = 4 * question["B"] * question["S"] ** 2 * question["H"] * question["D"] * (0.5 if causal else 1)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # an error if it does not apply, instead of the plain formula
        if question["pass"] == "forward":
            with torch.no_grad():
                return timed(question["seconds"], flops, attend)
        out = attend()
        return timed(question["seconds"], 2.5 * flops,
                     lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


serve(answer)
