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


def answer(question):
    torch.set_num_threads(question["threads"])
    dtype = getattr(torch, question.get("dtype", "float32"))
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
