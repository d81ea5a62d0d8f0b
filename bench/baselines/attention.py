"""PyTorch's scaled_dot_product_attention on the CPU, answering the same questions as our compare_worker."""
import functools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from lines import serve, timed


@functools.cache
def problem(batch, length, heads, head):
    """q, k, v and dout, contiguous [B, H, S, D]."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(batch, heads, length, head, generator=generator) for _ in range(4)]
    for x in tensors[:3]:
        x.requires_grad_()
    return tensors


def answer(question):
    torch.set_num_threads(question["threads"])
    q, k, v, dout = problem(question["B"], question["S"], question["H"], question["D"])
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
