"""Losses and gradient norms of `shardscope run` equal PyTorch's for every golden, over wraps, strategies and prefetch.

The in-process tests cover the whole product; here every golden runs through real processes once with its own settings
and, the small ones, over a covering set of settings. `--all` as the last argument runs the whole product.
"""
import glob
import itertools
import json
import os
import sys

from command import Checks, DATA, run_json

WRAPS = ["root", "block", "blocks:2", "sublayer", "size:9000", "class:Linear"]
STRATEGIES = ["full_shard", "shard_grad_op", "no_shard"]
PREFETCH = [(0, "none"), (1, "pre"), (1, "post"), (2, "pre:2")]
STEPS = 5
# Norms from the fourth step on: AdamW divides a gradient that is nearly zero by itself, so where the sum of a few products
# rounds differently an element moves by another step; losses average that away.
WITHIN = {"losses": [1e-5] * 5, "grad_norms": [1e-5] * 3 + [1e-4] * 2}

check = Checks()


def compare(name, golden, settings):
    got = run_json(settings, golden["shardscope_flags"])
    what = f"{name} {settings}"
    check(got["status"] == "ok", f"{what}: {got['status']} {got['reason']}")
    for key in ("losses", "grad_norms"):
        pairs = list(zip(got[key], golden[key]))[:STEPS]
        off = [abs(a - b) / abs(b) for a, b in pairs]
        check(len(off) == STEPS and all(o <= w for o, w in zip(off, WITHIN[key])), f"{what}: {key} off by {off} relative")


def combinations(whole):
    everything = list(itertools.product(WRAPS, STRATEGIES, PREFETCH))
    if whole:
        return everything
    # Every pair of values of any two of the three settings appears.
    return [(w, STRATEGIES[(i + j) % 3], PREFETCH[j]) for i, w in enumerate(WRAPS) for j in range(4)]


goldens = {os.path.basename(f)[:-5]: json.load(open(f)) for f in sorted(glob.glob(os.path.join(DATA, "goldens", "*.json")))}
check(len(goldens) == 8, f"8 goldens wanted, {len(goldens)} found")
whole = sys.argv[-1] == "--all"
for name, golden in goldens.items():
    compare(name, golden, {})
    if name in ("tiny_w2", "uneven_w3") or (whole and not name.startswith("medium")):
        for wrap, strategy, (forward, backward) in combinations(whole):
            compare(name, golden, {"wrap": wrap, "strategy": strategy, "forward_prefetch": forward, "backward_prefetch": backward})
compare("tiny_w2", goldens["tiny_w2"], {"collectives": "gloo"})
compare("tiny_w2", goldens["tiny_w2"], {"reduce_scatter_communicator": "own", "reduce_scatter_slots": 3})
compare("tiny_w2", goldens["tiny_w2"], {"reshard_after_forward": "true", "max_inflight": "1"})
compare("tiny_w2", goldens["tiny_w2"], {"wire": "100us,1GB/s"})
check.done()
