"""The groups of rows that bench/compare can measure, by name."""
import dataclasses
import typing

from comparison.groups import accuracy, bfloat16, kernels, memory, baseline_attention, ring, steps, tokenizers
from comparison.groups.context import Context

__all__ = ["Context", "GROUPS", "Group", "names", "run"]


@dataclasses.dataclass
class Group:
    title: str
    measure: typing.Callable  # (context) -> rows, figures
    needs_baseline: bool = False
    has_targets: bool = True


GROUPS = {
    "attention": Group("attention over a large product, one core", kernels.attention),
    "scaling": Group("attention on all cores over one", kernels.scaling),
    "peer-attention": Group("attention over PyTorch's on all cores", baseline_attention.measure, needs_baseline=True),
    "gpt2": Group("a training step of GPT-2 124M", lambda context: steps.measure(context, "gpt2"), needs_baseline=True),
    "llama": Group("a training step of a Llama of 124M", lambda context: steps.measure(context, "llama"),
                   needs_baseline=True, has_targets=False),
    "bfloat16": Group("attention and a training step in bfloat16", bfloat16.measure, needs_baseline=True),
    "ring": Group("a training step on a ring over one rank", ring.measure),
    "memory": Group("what a rank holds as the ring grows", memory.measure),
    "accuracy": Group("the error of a ring over that of one rank", accuracy.measure, needs_baseline=True),
    "tokenizers": Group("tokenizing over its baselines, one core", tokenizers.measure),
}


def names(quick):
    """Return the groups that are measured by default: all, or in quick mode those with targets."""
    return [name for name, group in GROUPS.items() if group.has_targets or not quick]


def run(name, context):
    """Return the rows and figures of a group."""
    return GROUPS[name].measure(context)
