#!/usr/bin/env python3
"""Computes the configs of ConfigSweep in transformers, in float64, and compares the nll of every token.

    RINGTRAIN_SWEPT_CONFIGS=swept.jsonl build/release/bin/train_tests --gtest_filter='ConfigSweep.*'
    python check_swept_configs.py swept.jsonl

PyTorch and transformers are needed; neither the build nor the tests need this script. Ends with 1 if a class refuses a
config, or computes another model."""
import collections
import json
import sys

import torch
import transformers

from make_golden import compute_in_double
from make_hugging_face import CLASSES, nll_of

TOLERANCE = 1e-9


def difference(case):
    """The difference, relative to the largest nll, or why the class does not accept the config."""
    kind = case["config"]["model_type"]
    try:
        config = getattr(transformers, CLASSES[kind][0]).from_dict(case["config"])
        model = getattr(transformers, CLASSES[kind][1])(config).double().eval()
        theirs = nll_of(model, kind, torch.tensor([case["tokens"]]))
    except Exception as error:  # any error means that the export does not load
        return f"{type(error).__name__}: {error}"
    ours = torch.tensor(case["nll"])[:-1]
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def main(path):
    worst, refused, other, counts = 0.0, [], [], collections.Counter()
    with open(path) as file:
        for case in map(json.loads, file):
            if len(case["tokens"]) < 2:
                continue
            counts[case["config"]["model_type"]] += 1
            found = difference(json.loads(json.dumps(case)))  # a copy: the class changes its argument
            if isinstance(found, str):
                refused.append((found, case["config"]))
            elif not found <= TOLERANCE:
                other.append((found, case["config"]))
            else:
                worst = max(worst, found)
    for found, config in refused + other:
        print(found, json.dumps(config))
    print(f"transformers {transformers.__version__}: {dict(counts)}: worst difference {worst:.1e}, {len(refused)} refused, "
          f"{len(other)} above {TOLERANCE}")
    return 1 if refused or other else 0


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    compute_in_double()
    sys.exit(main(sys.argv[1]))
