#!/usr/bin/env python3
"""Training steps of configs/long_ctx_gpu.yaml's model in PyTorch, as the baseline of steps.py.

Everything is compiled with torch.compile, except for attention (cuDNN) and matrix products. Weights and gradients are
bfloat16; AdamW keeps float32 weights and moments. The loss computes its gradient in the forward pass, in chunks, so no
more than one chunk of logits exists. --recompute N: the first N layers keep only their input and attention. Prints one
line of JSON. Exit: 0 done; 77 no PyTorch or no GPU here; 1 anything else, such as too little memory.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
except ImportError:
    print("no PyTorch in this Python")
    sys.exit(77)

LOSS_CHUNK = 8192


class Shape:
    def __init__(self, tiny):
        self.vocabulary, self.width, self.layers, self.heads, self.key_value_heads, self.head, self.feedforward = (
            (96, 64, 2, 2, 1, 32, 96) if tiny else (128256, 2048, 16, 16, 8, 128, 8192))


def rms_norm(x, weight):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * weight.float()).to(x.dtype)


def rotated(x, cos, sin):
    """x: [B, S, H, D]; the halves of a head are the two coordinates. Returns [B, H, S, D]."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype).transpose(1, 2)


def before_attention(x, norm, query, key, value, cos, sin, head):
    normed = rms_norm(x, norm)
    q, k, v = (F.linear(normed, w).unflatten(-1, (-1, head)) for w in (query, key, value))
    return rotated(q, cos, sin), rotated(k, cos, sin), v.transpose(1, 2)


def after_attention(x, attended, output, norm, gate, up, down):
    x = x + F.linear(attended.transpose(1, 2).flatten(2), output)
    normed = rms_norm(x, norm)
    return x + F.linear((F.silu(F.linear(normed, gate).float()) * F.linear(normed, up).float()).to(x.dtype), down)


def loss_and_gradient(logits, labels, scale):
    """Returns the sum of the rows' losses times scale and its gradient; a negative label has no loss."""
    rows = logits.float()
    logsumexp = rows.logsumexp(-1, keepdim=True)
    counts = (labels >= 0)[:, None]
    label = labels.clamp(min=0)[:, None]
    loss = torch.where(counts, logsumexp - rows.gather(1, label), 0).sum() * scale
    columns = torch.arange(rows.shape[1], device=rows.device)
    gradient = torch.where(counts, ((rows - logsumexp).exp() - (columns == label).float()) * scale, 0)
    return loss, gradient.to(logits.dtype)


def adamw(weight, master, first, second, gradient, scale, count, decay):
    """count: of steps, with this one, as a tensor, so that its value is not compiled."""
    gradient = gradient.float() * scale
    first.lerp_(gradient, 0.1)
    second.lerp_(gradient * gradient, 0.05)
    direction = first / (1 - 0.9**count) / ((second / (1 - 0.95**count)).sqrt() + 1e-8)
    master.sub_(3e-4 * (direction + decay * master))
    weight.copy_(master)


class Model(torch.nn.Module):
    def __init__(self, shape, length, compiled, recompute, device):
        super().__init__()
        self.shape, self.recompute = shape, recompute
        compiled = torch.compile if compiled else lambda function, **_: function
        self.before, self.after, self.norm, self.entropy = (
            compiled(function, dynamic=False)
            for function in (before_attention, after_attention, rms_norm, loss_and_gradient))

        def weight(*sizes):
            return torch.nn.Parameter((torch.randn(*sizes, device=device) * 0.02).bfloat16())

        def ones():
            return torch.nn.Parameter(torch.ones(shape.width, device=device, dtype=torch.bfloat16))

        keys = shape.key_value_heads * shape.head
        self.table, self.final_norm = weight(shape.vocabulary, shape.width), ones()
        self.blocks = torch.nn.ModuleList(
            torch.nn.ParameterDict({
                "attention_norm": ones(), "query": weight(shape.heads * shape.head, shape.width),
                "key": weight(keys, shape.width), "value": weight(keys, shape.width),
                "output": weight(shape.width, shape.heads * shape.head), "feedforward_norm": ones(),
                "gate": weight(shape.feedforward, shape.width), "up": weight(shape.feedforward, shape.width),
                "down": weight(shape.width, shape.feedforward)}) for _ in range(shape.layers))
        frequencies = 500000.0 ** (-torch.arange(0, shape.head, 2, device=device, dtype=torch.float64) / shape.head)
        angles = torch.outer(torch.arange(length, device=device, dtype=torch.float64), frequencies)[None, :, None, :]
        self.cos, self.sin = angles.cos().float(), angles.sin().float()

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.table)
        for index, block in enumerate(self.blocks):
            def call(function, *tensors, again=index < self.recompute):
                return checkpoint(function, *tensors, use_reentrant=False) if again else function(*tensors)
            q, k, v = call(self.before, x, block["attention_norm"], block["query"], block["key"], block["value"],
                           self.cos, self.sin, self.shape.head)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = call(self.after, x, attended, block["output"], block["feedforward_norm"], block["gate"], block["up"],
                     block["down"])
        x = self.norm(x, self.final_norm).flatten(0, 1)
        return ChunkedLoss.apply(x, self.table, labels.flatten(), self.entropy)


class ChunkedLoss(torch.autograd.Function):
    """The mean loss of rows x [T, C] with the output table w [V, C]; its gradients are ready after forward."""

    @staticmethod
    def forward(context, x, w, labels, entropy):
        scale = 1 / (labels >= 0).sum()
        total, dx, dw = 0, torch.empty_like(x), None
        for rows, chunk_labels, out in zip(x.split(LOSS_CHUNK), labels.split(LOSS_CHUNK), dx.split(LOSS_CHUNK)):
            loss, gradient = entropy(rows @ w.t(), chunk_labels, scale)
            total = total + loss
            torch.mm(gradient, w, out=out)
            product = gradient.t() @ rows
            dw = product if dw is None else dw.float().add_(product)  # several chunks: the sum is float32
        context.save_for_backward(dx, dw.to(w.dtype))
        return total

    @staticmethod
    def backward(context, gradient):  # which is 1, as this is the loss
        dx, dw = context.saved_tensors
        return dx, dw, None, None


def make_step(model, tokens, labels, compiled):
    update = torch.compile(adamw, dynamic=False) if compiled else adamw
    parameters = list(model.parameters())
    state = [(p, p.detach().float(), *(torch.zeros_like(p, dtype=torch.float32) for _ in range(2))) for p in parameters]
    count = torch.zeros((), device=tokens.device)

    def step():
        loss = model(tokens, labels)
        loss.backward()
        with torch.no_grad():
            norms = torch._foreach_norm([p.grad for p in parameters], 2, dtype=torch.float32)
            scale = 1 / torch.linalg.vector_norm(torch.stack(norms)).clamp(min=1)
            count.add_(1)
            for p, master, first, second in state:
                update(p, master, first, second, p.grad, scale, count, 0.1 if p.dim() > 1 else 0.0)
                p.grad = None
        return loss.item()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=8192, help="tokens of a sequence")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--recompute", type=int, default=0, metavar="N")
    parser.add_argument("--steps", type=int, default=8, help="after 3 that do not count")
    parser.add_argument("--tiny", action="store_true", help="a miniature on the CPU, not compiled")
    arguments = parser.parse_args()
    if not arguments.tiny and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return 77
    torch.manual_seed(1)
    device = "cpu" if arguments.tiny else "cuda"
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(arguments.tiny)
    shape = Shape(arguments.tiny)
    model = Model(shape, arguments.length, not arguments.tiny, arguments.recompute, device)
    tokens = torch.randint(shape.vocabulary, (arguments.sequences, arguments.length), device=device)
    labels = tokens.roll(-1, 1)
    labels[:, -1] = -1
    step = make_step(model, tokens, labels, not arguments.tiny)
    losses, seconds = [step() for _ in range(3)], []
    begun = time.time()
    for _ in range(arguments.steps):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"torch": torch.__version__, "begun": begun, "ended": time.time(), "losses": losses,
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "seconds": statistics.median_low(seconds),
                      "bytes": 0 if arguments.tiny else torch.cuda.max_memory_allocated()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
