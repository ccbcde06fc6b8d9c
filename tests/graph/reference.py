#!/usr/bin/env python3
"""What PyTorch says of a model that `shardscope export` exports: losses of a few steps in one process, eager, with the data and the
optimizer that shardscope uses. Needs torch 2.11, and transformers for --hf.

  reference.py FILE.py:FUNCTION|--hf CONFIG [--batch B] [--seq S] [--world W] [--steps N] [--seed S]
"""
import argparse
import json
import pathlib
import sys

import torch

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "harness" / "workload" / "python"
sys.path.insert(0, str(PYTHON))
import export_model  # noqa: E402

MASK = (1 << 64) - 1
GOLDEN, TOKENS, FEATURES, INPUT = 0x9E3779B97F4A7C15, 0x746F6B656E, 0x66656174, 0x696E707574


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def out(s, n):
    return mix((s + (n + 1) * GOLDEN) & MASK)


def rows(seed, first, batch, each, high):
    stream = out(seed ^ TOKENS, 0)
    return [[(out(stream, s * (each + 1) + t) >> 32) % high for t in range(each + 1)] for s in range(first, first + batch)]


def features(seed, sample, each):
    stream = out(seed ^ FEATURES, sample)
    return [((out(stream, i) >> 40) * 2.0 ** -23 - 1) for i in range(each)]


def make_input(entry, number, seed, first, batch):
    """docs/bring-your-model.md, "What the model is fed"."""
    sizes, tokens = entry["shape"], entry["role"] != "values"
    batched = bool(sizes) and sizes[0] == batch
    if not batched:
        first, batch = 0, 1
    each = 1
    for n in sizes:
        each *= n
    each //= max(batch, 1)
    dtype = getattr(torch, entry["dtype"])
    stream = seed if tokens else (seed + (number + 1) * INPUT) & MASK
    if dtype.is_floating_point:
        values = [features(stream, s, each) for s in range(first, first + batch)]
    else:
        low, high = entry.get("low", 0), entry.get("high", 2)
        shift = 1 if entry["role"] == "next_tokens" else 0
        values = [[low + v for v in r[shift:shift + each]] for r in rows(stream, first, batch, each, max(high - low, 1))]
    return torch.tensor(values).reshape(sizes).to(dtype)


def train(options):
    made = export_model.load(options)
    made.module.train()
    made.no_weights = False
    about = export_model.describe(made)
    module, batch = made.module, about["batch"]
    ranks = [{e["name"]: make_input(e, i, options.seed, r * batch, batch) for i, e in enumerate(about["inputs"])} for r in range(options.world)]
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(options.steps):
        total = 0.0
        for inputs in ranks:
            loss = module(**inputs)
            (loss / options.world).backward()
            total += loss.item() / options.world
        losses.append(total)
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "parameters": sum(p.numel() for p in {id(p): p for p in module.parameters()}.values())}


def parse(arguments=None):
    p = argparse.ArgumentParser()
    p.add_argument("function", nargs="?")
    p.add_argument("--hf")
    p.add_argument("--batch", type=int)
    p.add_argument("--seq", type=int)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    p.set_defaults(no_weights=False, dtype="fp32")
    return p.parse_args(arguments)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(train(parse())))
