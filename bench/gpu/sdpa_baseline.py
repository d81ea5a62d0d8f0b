#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention (cuDNN and flash backends) at the shapes of gpu_bench's attention group.

Timed like ours: events around each call, a warm-up, and the median; bfloat16, random inputs, with enough sets of them
to be several times larger than any cache, up to eight. forward keeps what backward needs; backward computes dq, dk, and
dv. A backend that refuses a shape is reported and left out. Exit: 0 done; 77 no PyTorch or no GPU here.
"""
import argparse
import itertools
import json
import math
import statistics
import sys

ROTATED_BYTES = 256 << 20


def shapes(quick):
    for dim, causal, length, key_heads in itertools.product((128, 64), (True, False), (2048, 8192, 32768), (16, 8)):
        if quick and (dim, causal, key_heads) != (128, True, 16) or quick and length > 8192:
            continue
        yield {"causal": causal, "D": dim, "S": length, "H": 16, "G": key_heads}


def seconds_of(torch, call, warm_up, repetitions):
    for i in range(warm_up):
        call(i)
    torch.cuda.synchronize()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repetitions)]
    for i, (begin, end) in enumerate(events):
        begin.record()
        call(warm_up + i)
        end.record()
    torch.cuda.synchronize()
    return statistics.median_low(begin.elapsed_time(end) for begin, end in events) * 1e-3


def measure(torch, backend, shape, repetitions):
    """Return the seconds of forward and of backward."""
    length, heads, key_heads, dim = shape["S"], shape["H"], shape["G"], shape["D"]
    sets = max(1, min(8, ROTATED_BYTES // (4 * length * dim * (heads + key_heads))))

    def random(count):  # [1, count, S, D], with a token's heads next to each other
        values = torch.randn(1, length, count, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        return values.detach().requires_grad_()

    inputs = [(random(heads), random(key_heads), random(key_heads), random(heads).detach()) for _ in range(sets)]
    with torch.nn.attention.sdpa_kernel([backend]):

        def forward(i):
            q, k, v, _ = inputs[i % sets]
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape["causal"],
                                                                    enable_gqa=heads != key_heads)

        forward_seconds = seconds_of(torch, forward, 3, repetitions)
        outputs = [forward(i) for i in range(sets)]

        def backward(i):
            q, k, v, gradient = inputs[i % sets]
            return torch.autograd.grad(outputs[i % sets], (q, k, v), gradient, retain_graph=True)

        backward_seconds = seconds_of(torch, backward, 3, repetitions)
        for value in (outputs[0], *backward(0)):
            if not math.isfinite(float(value.float().square().sum())):
                raise RuntimeError("an output is not finite")
    return forward_seconds, backward_seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and repetitions")
    parser.add_argument("--json", metavar="FILE", help="also write everything to FILE, anew after each shape")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("no PyTorch in this Python")
        return 77
    if not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return 77
    backends = {"cudnn": torch.nn.attention.SDPBackend.CUDNN_ATTENTION,
                "flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION}
    torch.manual_seed(20)
    report = {"program": "sdpa_baseline", "torch": torch.__version__, "cuda": torch.version.cuda,
              "cudnn": torch.backends.cudnn.version(), "gpu": torch.cuda.get_device_name(), "rows": [], "refused": []}
    print(f"PyTorch {report['torch']}, CUDA {report['cuda']}, cuDNN {report['cudnn']}, {report['gpu']}")
    for shape in shapes(arguments.quick):
        flops = 4 * shape["S"] ** 2 * shape["D"] * shape["H"] * (0.5 if shape["causal"] else 1)
        for name, backend in backends.items():
            try:
                times = measure(torch, backend, shape, 10 if arguments.quick else 15)
            except RuntimeError as error:
                report["refused"].append({"backend": name, "parameters": shape, "why": str(error).splitlines()[0]})
                print(f"sdpa       {name} refuses {shape}: {str(error).splitlines()[0]}", flush=True)
                continue
            for direction, factor, seconds in (("forward", 1, times[0]), ("backward", 2.5, times[1])):
                rate = factor * flops / seconds * 1e-12
                report["rows"].append({"group": "sdpa", "name": f"{name} {direction}", "value": rate, "unit": "TFLOP/s",
                                       "parameters": shape})
                print(f"sdpa       {name} {direction} {shape}  {rate:.4g} TFLOP/s", flush=True)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
