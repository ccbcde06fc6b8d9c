#!/usr/bin/env python3
"""The training of shardscope against PyTorch's own FSDP, cell by cell: strategy x layout x precision x accumulation x
checkpointing x {plain, tied, uneven, clipped}.

The layout per_parameter meets FSDP2 (fully_shard), flat meets FSDP1 (FullyShardedDataParallel), both on Gloo on the CPU.
Weights, data and optimizer come from the same formulas on both sides (tests/data/goldens/README.md); nothing is copied.
Compared are the losses and gradient norms of every step: a step's loss shows the parameters that the steps before made;
and the collectives of a step, their number and the bytes that a rank sends (as if in a ring). Deliberate differences:
  flat             ours pads to 128 bytes, FSDP1 to 16: a few percent more bytes, more where parameters have 20 elements
  hybrid, bf16     groups exchange fp32 partial sums here, PyTorch the reduce type
Frozen, unused, nested and repeated units have no setting of `run`; tests/workload/module_shapes_test.cc holds them against
unsharded autograd bit for bit.

  parity_matrix.py SHARDSCOPE [--all]      without --all: a subset that covers every value of every axis
"""
import argparse
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import peer_fsdp  # noqa: E402

STEPS, SEED, BATCH = 5, 7, 2
SIZES = {"plain": dict(layers=2, dim=32, heads=4, ffn=88, vocab=96, seq=16),
         "uneven": dict(layers=2, dim=20, heads=2, ffn=27, vocab=53, seq=11)}
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
SAME = "flat meets FSDP1, which has no "
AXES = {
    "world": [2, 3, 4],
    "layout": ["flat", "per_parameter"],
    "strategy": ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard:2", "hybrid_shard_zero2:2", "reshard:2"],
    "precision": ["fp32", "bf16/fp32", "bf16/bf16"],
    "accumulate": ["1", "3/last", "3/every"],
    "checkpoint": ["none", "block"],
    "model": ["plain", "tied", "uneven", "clipped"],
}
# Without --all: these, as (changes to the cell that PyTorch users start from).
BASE = dict(world=2, layout="per_parameter", strategy="full_shard", precision="fp32", accumulate="1", checkpoint="none",
            model="plain")
SUBSET = [{}, {"layout": "flat"}, {"strategy": "shard_grad_op", "accumulate": "3/last"},
          {"layout": "flat", "strategy": "shard_grad_op", "accumulate": "3/every", "model": "tied"},
          {"layout": "flat", "strategy": "no_shard", "accumulate": "3/last", "model": "clipped"},
          {"precision": "bf16/fp32", "checkpoint": "block"}, {"precision": "bf16/bf16", "accumulate": "3/every"},
          {"layout": "flat", "precision": "bf16/fp32"}, {"model": "tied", "checkpoint": "block"},
          {"model": "clipped", "accumulate": "3/every"}, {"layout": "flat", "checkpoint": "block", "model": "uneven"},
          {"world": 3, "model": "uneven"}, {"world": 3, "layout": "flat", "model": "uneven", "accumulate": "3/last"},
          {"world": 4, "strategy": "hybrid_shard:2"}, {"world": 4, "strategy": "hybrid_shard_zero2:2", "model": "clipped"},
          {"world": 4, "strategy": "reshard:2", "precision": "bf16/fp32"}]


def name_of(cell):
    return " ".join(f"{k}={v}" for k, v in cell.items())


def reason_to_skip(cell):
    """Why PyTorch has no counterpart, or None."""
    grouped = ":" in cell["strategy"]
    if grouped and cell["world"] != 4:
        return "groups of 2 need 4 ranks"
    if cell["layout"] == "flat" and cell["strategy"] == "reshard:2":
        return SAME + "reshard group"
    if cell["layout"] == "flat" and grouped:
        return "FSDP1's hybrid strategies do not run on Gloo on the CPU"
    if cell["layout"] == "per_parameter" and cell["strategy"] == "no_shard":
        return "FSDP2 has no direct form of no_shard"
    if (cell["strategy"], cell["accumulate"], cell["model"]) == ("no_shard", "3/last", "tied") and cell["precision"] != "fp32":
        return "FSDP1 fails: it gives a bf16 gradient to an fp32 parameter"
    return None


def settings_of(cell):
    s = dict(SIZES["uneven" if cell["model"] == "uneven" else "plain"])
    s.update(tied=cell["model"] == "tied", clip=0.2 if cell["model"] == "clipped" else None)
    count, _, sync = cell["accumulate"].partition("/")
    s.update(accumulate=int(count), every=sync == "every")
    param, _, reduce = cell["precision"].partition("/")
    s.update(param=param, reduce=reduce or param)
    return s


# ---- shardscope ------------------------------------------------------------------------------------------------------
def ours(program, cell):
    s = settings_of(cell)
    dims = ",".join(f"{k}={s[k]}" for k in ("layers", "dim", "heads", "ffn", "vocab")) + f",kv_heads={s['heads']}"
    dims += f",tied={'true' if s['tied'] else 'false'}"
    strategy = cell["strategy"]
    flags = ["--set", dims, "--seq", s["seq"], "--batch", BATCH, "--world", cell["world"], "--seed", SEED, "--steps", STEPS,
             "--warmup", 0, "--layout", cell["layout"], "--param-dtype", s["param"], "--reduce-dtype", s["reduce"],
             "--accumulate", s["accumulate"], "--accumulate-sync", "every" if s["every"] else "last",
             "--checkpoint", cell["checkpoint"], "--clip", s["clip"] or "none"]
    flags += ["--reshard-after-forward", "2"] if strategy == "reshard:2" else ["--strategy", strategy]
    run = subprocess.run([program, "run", "--json", "--repetitions", "1", *map(str, flags)], capture_output=True, text=True,
                         timeout=300)
    try:
        out = json.loads(run.stdout)
    except json.JSONDecodeError:
        raise RuntimeError(f"shardscope gave no result: {run.stderr.strip()[:300]}") from None
    if out["status"] not in ("ok", "near_oom"):
        raise RuntimeError(f"shardscope: {out['status']}, {out.get('reason')}")
    clipping = 1 if s["clip"] else 0
    sent = out["communicated_bytes"] - clipping * ring("all_reduce", 4, cell["world"])
    return out["losses"][:STEPS], out["grad_norms"][:STEPS], [out["collectives"] - clipping, sent]


def ring(kind, full_bytes, ranks):
    """Bytes that one rank sends."""
    return (2 if kind == "all_reduce" else 1) * full_bytes * (ranks - 1) // ranks


# ---- PyTorch, one rank -----------------------------------------------------------------------------------------------
class Counter:
    """Counts the collectives that are called through torch.distributed while it is on."""

    def __init__(self):
        import torch.distributed as dist
        self.on, self.calls, self.sent = False, 0, 0
        full = {"all_gather_into_tensor": lambda out, tensor, *_, **__: out, "reduce_scatter_tensor": lambda out, tensor, *_, **__: tensor,
                "all_gather": lambda out, tensor, *_, **__: out, "all_reduce": lambda tensor, *_, **__: tensor}
        for name, operand in full.items():
            setattr(dist, name, self.wrapped(dist, name, getattr(dist, name), operand))

    def wrapped(self, dist, name, call, operand):
        def counted(*args, **kwargs):
            outermost, on = self.on, self.on
            self.on = False  # one collective may be made of others
            if outermost:
                names = {"output_tensor": "out", "input_tensor": "tensor", "output": "out", "input": "tensor", "tensor_list": "out"}
                whole = operand(*args, **{names.get(k, k): v for k, v in kwargs.items()})
                parts = whole if isinstance(whole, list) else [whole]
                self.calls += 1
                self.sent += ring(name, sum(t.numel() * t.element_size() for t in parts), dist.get_world_size(kwargs.get("group")))
            try:
                return call(*args, **kwargs)
            finally:
                self.on = on
        return counted


def build(s, cell, rank):
    import torch
    a = argparse.Namespace(**{k: s[k] for k in SIZES["plain"]}, seed=SEED, wrap="block", rank=rank, world=cell["world"])
    model, block = peer_fsdp.build(a)
    if s["tied"]:
        model.head.weight = model.embedding.weight
    if cell["checkpoint"] == "block":
        from torch.utils.checkpoint import checkpoint
        for m in model.blocks:
            m.forward = functools.partial(checkpoint, m.forward, use_reentrant=False)
    half = {"fp32": torch.float32, "bf16": torch.bfloat16}
    return model, block, half[s["param"]], half[s["reduce"]]


def wrap_flat(model, block, cell, param, reduce):
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    mixed = None if param == torch.float32 else MixedPrecision(param_dtype=param, reduce_dtype=reduce)
    return FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy[cell["strategy"].upper()], mixed_precision=mixed, use_orig_params=True,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={block}),
        device_id=torch.device("cpu"))


def wrap_per_parameter(model, block, cell, param, reduce):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    strategy, world = cell["strategy"], cell["world"]
    hybrid = strategy.startswith("hybrid")
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard")) if hybrid else \
        init_device_mesh("cpu", (world,))
    free = 2 if strategy == "reshard:2" else strategy in ("full_shard", "hybrid_shard:2")
    policy = MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce)
    for m in model.modules():
        if isinstance(m, block):
            fully_shard(m, mesh=mesh, mp_policy=policy, reshard_after_forward=free)
    # The setting of ours is for the root too; what strategies say leaves it gathered, as the default here does.
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=2 if strategy == "reshard:2" else None)


def theirs(cell, rank, counter):
    import contextlib

    import torch
    import torch.distributed as dist
    from torch.nn import functional as F
    s, world = settings_of(cell), cell["world"]
    model, block, param, reduce = build(s, cell, rank)
    flat = cell["layout"] == "flat"
    model = (wrap_flat if flat else wrap_per_parameter)(model, block, cell, param, reduce)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    count, width = s["accumulate"], s["seq"] + 1
    numbers = peer_fsdp.top_bits(peer_fsdp.output(SEED ^ peer_fsdp.TOKENS, 0), count * world * BATCH * width, 32) % s["vocab"]
    batches = numbers.view(count, world, BATCH, width)[:, rank]
    losses, norms = [], []
    for _ in range(STEPS):
        total = 0.0
        counter.on, counter.calls, counter.sent = True, 0, 0
        for k, tokens in enumerate(batches):
            sync = s["every"] or k + 1 == count
            if not flat:
                model.set_requires_gradient_sync(sync)
            with model.no_sync() if flat and not sync else contextlib.nullcontext():
                logits = model(tokens[:, :-1].contiguous())
                loss = F.cross_entropy(logits.float().view(-1, s["vocab"]), tokens[:, 1:].reshape(-1)) / count
                loss.backward()
            total += float(loss.detach())
        counter.on = False
        limit = s["clip"] or 1e30
        norm = model.clip_grad_norm_(limit) if flat else torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = torch.tensor([total], dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        norms.append(float(norm))
    return losses, norms, [counter.calls, counter.sent]


def run_rank(rank, world, folder):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(os.path.join(folder, "store"), world))
    results, counter = [], Counter()
    for cell in json.loads(pathlib.Path(folder, "cells.json").read_text(encoding="utf-8")):
        try:
            results.append(theirs(cell, rank, counter))
        except Exception as e:  # noqa: BLE001 - becomes the cell's reason; all ranks fail alike
            results.append(f"PyTorch: {type(e).__name__}: {str(e)[:200]}")
    if rank == 0:
        pathlib.Path(folder, "results.json").write_text(json.dumps(results), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # Gloo's threads now and then abort an interpreter that ends; the result is on disk


def peers(world, cells):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "cells.json").write_text(json.dumps(cells), encoding="utf-8")
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank", str(r), "--world", str(world), "--folder", folder])
                 for r in range(world)]
        try:
            for p in ranks:
                p.wait(timeout=120 + 60 * len(cells))
        finally:
            for p in ranks:
                p.kill()
        path = pathlib.Path(folder, "results.json")
        if not path.exists():
            return ["PyTorch's ranks ended without a result"] * len(cells)
        return json.loads(path.read_text(encoding="utf-8"))


# ---- comparison ------------------------------------------------------------------------------------------------------
def difference(a, b):
    """The largest relative difference of losses and of norms (half as important: they feel roundings more)."""
    return [max(abs(x - y) / abs(y) for x, y in zip(p, q, strict=True)) for p, q in zip(a[:2], b[:2], strict=True)]


def same_collectives(cell, mine, peer):
    if mine[0] != peer[0]:
        return False
    if cell["layout"] == "flat":
        return peer[1] <= mine[1] <= (1.3 if cell["model"] == "uneven" else 1.06) * peer[1]
    if cell["strategy"].startswith("hybrid") and cell["precision"] == "bf16/bf16":
        return mine[1] >= peer[1]
    return mine[1] == peer[1]


def judge(program, cell, peer):
    if isinstance(peer, str):
        return False, peer
    try:
        mine = ours(program, cell)
        losses, norms = difference(mine, peer)
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return False, str(e)
    limit = TOLERANCE["fp32" if cell["precision"] == "fp32" else "bf16"]
    good = losses <= limit and norms <= (2 * limit if limit < 1e-3 else 2.5 * limit)
    calls = f"{mine[2][0]} collectives of {mine[2][1]} B"
    if not same_collectives(cell, mine[2], peer[2]):
        return False, f"{calls}, PyTorch {peer[2][0]} of {peer[2][1]} B"
    return good and math.isfinite(losses), f"losses {losses:.1e}, norms {norms:.1e}, {calls}"


def cells_of(everything):
    if not everything:
        return [{**BASE, **change} for change in SUBSET]
    cells = [{}]
    for key, values in AXES.items():
        cells = [{**c, key: v} for c in cells for v in values]
    return cells


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program", nargs="?")
    p.add_argument("--all", action="store_true")
    p.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    p.add_argument("--world", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--folder", default="", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.rank >= 0:
        return run_rank(a.rank, a.world, a.folder)
    failed = 0
    for world in AXES["world"]:
        cells = [c for c in cells_of(a.all) if c["world"] == world]
        runnable = [c for c in cells if reason_to_skip(c) is None]
        results = dict(zip(map(name_of, runnable), peers(world, runnable), strict=True))
        for cell in cells:
            skip = reason_to_skip(cell)
            good, text = (True, skip) if skip else judge(a.program, cell, results[name_of(cell)])
            failed += not good
            print(f"{'skipped' if skip else 'passed ' if good else 'FAILED '}  {name_of(cell)}: {text}", flush=True)
    print(f"{failed} cells failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
