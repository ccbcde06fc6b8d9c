#!/usr/bin/env python3
"""The training of shardscope against PyTorch's own FSDP, cell by cell: strategy x layout x precision x accumulation x
checkpointing x {plain, tied, uneven, clipped}.

The layout per_parameter meets FSDP2 (fully_shard), flat meets FSDP1 (FullyShardedDataParallel), both on Gloo on the CPU.
Weights, data and optimizer come from the same formulas on both sides (tests/data/goldens/README.md); nothing is copied.
Compared are the losses and gradient norms of every step, the parameters after the last one, and the collectives of the
last step one by one: kind, ranks, type and bytes of the whole buffer, in the order in which they are issued. DIFFERENCES
lists where these differ on purpose; anything else fails the cell. FSDP2 is told what it leaves to its user: hybrid groups
reduce across once a step (set_requires_all_reduce).
Frozen, unused, nested and repeated units have no setting of `run`; tests/workload/module_shapes_test.cc holds them against
unsharded autograd bit for bit.

  parity_matrix.py SHARDSCOPE DRIVER [--all]      without --all: a subset that covers every value of every axis, whose losses
                                                  `shardscope run` must give too, to the last bit
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


# Where the collectives of a step differ from PyTorch's on purpose: name -> why. `explained` says how far each may go.
DIFFERENCES = {
    "padding": "flat: parameters and shards start on 128 bytes here (aligned messages), on 16 in FSDP1; in elements this is the same for all types of a unit",
    "fp32 replicas": "hybrid, reduce type bf16: the sums of the groups meet in fp32 here, in bf16 in FSDP2, which rounds them again",
}


# ---- shardscope ------------------------------------------------------------------------------------------------------
def case_of(cell):
    """Settings of shardscope."""
    s = settings_of(cell)
    dims = ",".join(f"{k}={s[k]}" for k in ("layers", "dim", "heads", "ffn", "vocab")) + f",kv_heads={s['heads']}"
    dims += f",tied={'true' if s['tied'] else 'false'}"
    case = dict(set=dims, seq=s["seq"], batch=BATCH, world=cell["world"], seed=SEED, steps=STEPS, warmup=0, layout=cell["layout"],
                param_dtype=s["param"], reduce_dtype=s["reduce"], accumulate=s["accumulate"],
                accumulate_sync="every" if s["every"] else "last", checkpoint=cell["checkpoint"], clip=s["clip"] or "none")
    case.update({"reshard_after_forward": "2"} if cell["strategy"] == "reshard:2" else {"strategy": cell["strategy"]})
    return {k: str(v) for k, v in case.items()}


def ours(driver, cells, folder):
    """One answer a cell, with its parameters as tensors in the order of the model."""
    lines = [json.dumps(dict(settings=case_of(c), save=f"{folder}/state{i}")) for i, c in enumerate(cells)]
    run = subprocess.run([driver], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120 + 20 * len(cells))
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(cells):
        sys.exit(f"{driver} answered {len(answers)} of {len(cells)} cells: exit {run.returncode}: {run.stderr.strip()[:300]}")
    for i, answer in enumerate(answers):
        if "error" not in answer:
            values = saved(f"{folder}/state{i}")
            answer["values"] = [values[name] for name in answer["parameters"]]
    return answers


def saved(directory):
    """The parameters of a saved state (fsdp/module/README.md)."""
    import torch
    whole = {}
    for path in pathlib.Path(directory).glob("*.safetensors"):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        for key, entry in header.items():
            name, _, kind = key.rpartition("/")
            if kind != "value":
                continue
            part = json.loads(header["__metadata__"][name])
            first, last = entry["data_offsets"]
            flat = whole.setdefault(name, torch.full(part["shape"], math.nan)).view(-1)
            if last > first:
                flat[part["begin"]:part["end"]] = torch.frombuffer(bytearray(data[begin + first:begin + last]), dtype=torch.float32)
    return whole


def command_agrees(program, cell, answer):
    """Whether `shardscope run`, ranks as processes, gives what the driver gave. None, or what is different."""
    flags = [text for k, v in case_of(cell).items() for text in ("--" + k.replace("_", "-"), v)]
    run = subprocess.run([program, "run", "--json", "--repetitions", "1", *flags], capture_output=True, text=True, timeout=300)
    try:
        out = json.loads(run.stdout)
    except json.JSONDecodeError:
        return f"shardscope gave no result: {run.stderr.strip()[:300]}"
    if out["status"] not in ("ok", "near_oom"):
        return f"shardscope: {out['status']}, {out.get('reason')}"
    if out["losses"][:STEPS] != answer["losses"]:
        return "shardscope run gives other losses than its ranks as threads"
    calls = out["collectives"] - (1 if cell["model"] == "clipped" else 0)
    return None if calls == len(answer["collectives"]) else f"shardscope run counts {calls} collectives"


# ---- PyTorch, one rank -----------------------------------------------------------------------------------------------
class Recorder:
    """Writes down the collectives that are called through torch.distributed while it is on."""

    def __init__(self):
        import torch.distributed as dist
        self.on, self.calls = False, []
        gather, scatter, reduce = (lambda out, tensor, *_, **__: out), (lambda out, tensor, *_, **__: tensor), (lambda tensor, *_, **__: tensor)
        for name, kind, operand in (("all_gather_into_tensor", "all_gather", gather), ("all_gather", "all_gather", gather),
                                    ("reduce_scatter_tensor", "reduce_scatter", scatter), ("all_reduce", "all_reduce", reduce)):
            setattr(dist, name, self.wrapped(dist, kind, getattr(dist, name), operand))

    def wrapped(self, dist, kind, call, operand):
        def recorded(*args, **kwargs):
            on = self.on
            self.on = False  # one collective may be made of others
            if on:
                names = {"output_tensor": "out", "input_tensor": "tensor", "output": "out", "input": "tensor", "tensor_list": "out"}
                whole = operand(*args, **{names.get(k, k): v for k, v in kwargs.items()})
                parts = whole if isinstance(whole, list) else [whole]
                dtype = {"torch.float32": "fp32", "torch.bfloat16": "bf16"}.get(str(parts[0].dtype), str(parts[0].dtype))
                self.calls.append([kind, sum(t.numel() * t.element_size() for t in parts), dtype, dist.get_world_size(kwargs.get("group"))])
            try:
                return call(*args, **kwargs)
            finally:
                self.on = on
        return recorded


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


def theirs(cell, rank, recorder):
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
        recorder.on, recorder.calls = True, []
        for k, tokens in enumerate(batches):
            sync = s["every"] or k + 1 == count
            if not flat:
                model.set_requires_gradient_sync(sync)
                model.set_requires_all_reduce(k + 1 == count)  # hybrid: across groups only once a step, as here
            with model.no_sync() if flat and not sync else contextlib.nullcontext():
                logits = model(tokens[:, :-1].contiguous())
                loss = F.cross_entropy(logits.float().view(-1, s["vocab"]), tokens[:, 1:].reshape(-1)) / count
                loss.backward()
            total += float(loss.detach())
        recorder.on = False
        limit = s["clip"] or 1e30
        norm = model.clip_grad_norm_(limit) if flat else torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = torch.tensor([total], dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        norms.append(float(norm))
    return dict(losses=losses, norms=norms, collectives=recorder.calls), full_parameters(model, flat)


def full_parameters(model, flat):
    import torch
    if flat:
        from torch.distributed.fsdp import FullyShardedDataParallel
        with FullyShardedDataParallel.summon_full_params(model, writeback=False), torch.no_grad():
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor().detach() for p in model.parameters()]


def run_rank(rank, world, folder):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(os.path.join(folder, "store"), world))
    results, recorder = [], Recorder()
    for i, cell in enumerate(json.loads(pathlib.Path(folder, "cells.json").read_text(encoding="utf-8"))):
        try:
            numbers, parameters = theirs(cell, rank, recorder)
            if rank == 0:
                torch.save(parameters, os.path.join(folder, f"parameters{i}.pt"))
            results.append(numbers)
        except Exception as e:  # noqa: BLE001 - becomes the cell's reason; all ranks fail alike
            results.append(f"PyTorch: {type(e).__name__}: {str(e)[:200]}")
    if rank == 0:
        pathlib.Path(folder, "results.json").write_text(json.dumps(results), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # Gloo's threads now and then abort an interpreter that ends; the result is on disk


def peers(world, cells, folder):
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
    import torch
    results = json.loads(path.read_text(encoding="utf-8"))
    for i, r in enumerate(results):
        if isinstance(r, dict):
            r["values"] = torch.load(os.path.join(folder, f"parameters{i}.pt"))
    return results


# ---- comparison ------------------------------------------------------------------------------------------------------
def difference(mine, peer):
    """The largest relative difference of two lists of numbers."""
    return max(abs(x - y) / abs(y) for x, y in zip(mine, peer, strict=True))


def parameter_difference(mine, peer):
    """The largest relative difference of a parameter, in the Euclidean norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(mine, peer, strict=True))


def explained(cell, answer, mine, peer):
    """The name of the difference between two collectives, "" where there is none; None where it should not be."""
    kind, size, dtype, ranks, unit = mine
    if [kind, size, dtype, ranks] == peer:
        return ""
    if [kind, ranks] != [peer[0], peer[3]]:
        return None
    if cell["layout"] == "flat" and dtype == peer[2]:
        # Before each parameter and at the end of each rank's shard, less than what is 128 bytes in the narrower type.
        places = answer["units"][unit][1] + ranks
        step = 256 if dtype == "fp32" and "bf16" in cell["precision"] else 128
        return "padding" if peer[1] <= size < peer[1] + step * places else None
    replicas = cell["strategy"].startswith("hybrid") and kind == "all_reduce"
    return "fp32 replicas" if replicas and [dtype, peer[2]] == ["fp32", "bf16"] and size == 2 * peer[1] else None


def collectives_of(cell, answer, peer):
    """-> (they are the same but for what is explained, what to print)"""
    mine, theirs_ = answer["collectives"], peer["collectives"]
    if len(mine) != len(theirs_):
        return False, f"{len(mine)} collectives, PyTorch {len(theirs_)}: {mine} {theirs_}"
    found = []
    for i, (a, b) in enumerate(zip(mine, theirs_)):
        why = explained(cell, answer, a, b)
        if why is None:
            return False, f"collective {i} of {len(mine)} is {a[:4]} of {answer['units'][a[4]][0]}, PyTorch's {b}: {mine} {theirs_}"
        found.append(why)
    differing = {w: found.count(w) for w in dict.fromkeys(found) if w}
    text = f"{len(mine)} collectives" + "".join(f", {n} differ by {w}" for w, n in differing.items())
    return True, text


def judge(cell, answer, peer):
    if isinstance(peer, str):
        return False, peer
    if "error" in answer:
        return False, f"shardscope: {answer['error']}"
    losses, norms = (difference(answer[k], peer[k]) for k in ("losses", "norms"))
    values = parameter_difference(answer["values"], peer["values"])
    # AdamW divides by the gradient's own size: where that is as small as its epsilon, the last bits of a sum decide a part
    # of the update. Losses do not feel these few elements; a parameter's norm does.
    limit = TOLERANCE["fp32" if cell["precision"] == "fp32" else "bf16"]
    # Norms feel roundings twice as much as losses.
    good = losses <= limit and norms <= (2 * limit if limit < 1e-3 else 2.5 * limit) and values <= (5 * limit if limit < 1e-3 else limit)
    same, calls = collectives_of(cell, answer, peer)
    return good and same and math.isfinite(losses), f"losses {losses:.1e}, norms {norms:.1e}, parameters {values:.1e}, {calls}"


def cells_of(everything):
    if not everything:
        return [{**BASE, **change} for change in SUBSET]
    cells = [{}]
    for key, values in AXES.items():
        cells = [{**c, key: v} for c in cells for v in values]
    return cells


BATCH_OF_CELLS = 24  # of one set of processes


def run_world(a, world):
    """Prints the world's cells; -> their verdicts."""
    cells = [c for c in cells_of(a.all) if c["world"] == world]
    skipped = [c for c in cells if reason_to_skip(c)]
    for cell in skipped:
        print(f"skipped  {name_of(cell)}: {reason_to_skip(cell)}", flush=True)
    runnable = [c for c in cells if not reason_to_skip(c)]
    verdicts = ["skipped"] * len(skipped)
    for begin in range(0, len(runnable), BATCH_OF_CELLS):
        verdicts += run_batch(a, world, runnable[begin:begin + BATCH_OF_CELLS])
    return verdicts


def run_batch(a, world, cells):
    with tempfile.TemporaryDirectory() as folder:
        answers = ours(a.driver, cells, folder)
        results = peers(world, cells, folder)
    verdicts = []
    for cell, answer, result in zip(cells, answers, results, strict=True):
        good, text = judge(cell, answer, result)
        other = command_agrees(a.program, cell, answer) if good and not a.all else None
        good, text = good and other is None, other or text
        verdicts.append("passed" if good else "FAILED")
        print(f"{verdicts[-1]:7}  {name_of(cell)}: {text}", flush=True)
    return verdicts


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program", nargs="?")
    p.add_argument("driver", nargs="?")
    p.add_argument("--all", action="store_true")
    p.add_argument("--worlds", type=int, nargs="+", default=AXES["world"])
    p.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    p.add_argument("--world", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--folder", default="", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.rank >= 0:
        return run_rank(a.rank, a.world, a.folder)
    verdicts = [v for world in a.worlds for v in run_world(a, world)]
    print(", ".join(f"{verdicts.count(v)} cells {v}" for v in ("passed", "FAILED", "skipped")))
    for name, why in DIFFERENCES.items():
        print(f"on purpose, {name}: {why}")
    return 1 if "FAILED" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
