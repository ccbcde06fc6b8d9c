"""PyTorch's side of the parity matrix: one rank of a long-lived world on Gloo that trains one cell after the other.

FSDP2 is told what it leaves to its user: hybrid groups reduce across once a step (set_requires_all_reduce).
"""
import contextlib
import datetime
import functools
import gc
import io
import os
import warnings

import families
import torch
import torch._dynamo  # noqa: F401 - the first tensor with a placement imports it, in each rank unless it is here already
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}
TIMEOUT = datetime.timedelta(seconds=120)


class Recorder:
    """Writes down the collectives that are called through torch.distributed while it is on."""

    def __init__(self):
        self.on, self.calls = False, []
        gather, scatter, reduce = (lambda out, tensor, *_, **__: out), (lambda out, tensor, *_, **__: tensor), (lambda tensor, *_, **__: tensor)
        for name, kind, operand in (("all_gather_into_tensor", "all_gather", gather), ("all_gather", "all_gather", gather),
                                    ("reduce_scatter_tensor", "reduce_scatter", scatter), ("all_reduce", "all_reduce", reduce)):
            setattr(dist, name, self.wrapped(kind, getattr(dist, name), operand))

    def wrapped(self, kind, call, operand):
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


def wrap_flat(model, cell, s):
    mixed = None if s["param"] == "fp32" else MixedPrecision(param_dtype=DTYPE[s["param"]], reduce_dtype=DTYPE[s["reduce"]])
    return FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy[cell["strategy"].upper()], mixed_precision=mixed, use_orig_params=True,
        auto_wrap_policy=ModuleWrapPolicy({type(m) for m in model.modules() if isinstance(m, families.Block)}),
        device_id=torch.device("cpu"))


@functools.lru_cache
def mesh_of(world, hybrid):
    return init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard")) if hybrid else init_device_mesh("cpu", (world,))


def wrap_per_parameter(model, cell, s):
    strategy = cell["strategy"]
    mesh = mesh_of(cell["world"], strategy.startswith("hybrid"))
    free = 2 if strategy == "reshard:2" else strategy in ("full_shard", "hybrid_shard:2")
    policy = MixedPrecisionPolicy(param_dtype=DTYPE[s["param"]], reduce_dtype=DTYPE[s["reduce"]], output_dtype=DTYPE.get(s["output"]))
    for m in model.modules():
        if isinstance(m, families.Block):
            fully_shard(m, mesh=mesh, mp_policy=policy, reshard_after_forward=free)
    # The setting of ours is for the root too; what strategies say leaves it gathered, as the default here does.
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=2 if strategy == "reshard:2" else None)


def loss_of(model, inputs, targets, count):
    logits = model(inputs)
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets) / count


def train(cell, s, recorder):
    """-> (numbers, values of the parameters)"""
    rank, world, flat = dist.get_rank(), cell["world"], cell["layout"] == "flat"
    model = families.build(s, s["seed"])
    names = [name for name, _ in model.named_parameters()]
    if cell["checkpoint"] == "block":
        for m in model.modules():
            if isinstance(m, families.Block):
                m.forward = functools.partial(checkpoint, m.forward, use_reentrant=False)
    model = (wrap_flat if flat else wrap_per_parameter)(model, cell, s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=s["epsilon"], weight_decay=0.1, fused=True)
    batches = families.batches(s, s["seed"], rank, world, s["batch"])
    losses, norms = [], []
    for _ in range(s["steps"]):
        total = 0.0
        recorder.on, recorder.calls = True, []
        for k, (inputs, targets) in enumerate(batches):
            last = k + 1 == len(batches)
            sync = s["every"] or last
            if not flat:
                model.set_requires_gradient_sync(sync)
                model.set_requires_all_reduce(last)  # hybrid: across groups only once a step, as here
            with model.no_sync() if flat and not sync else contextlib.nullcontext():
                loss = loss_of(model, inputs, targets, len(batches))
                loss.backward()
            total += float(loss.detach())
        recorder.on = False
        limit = s["clip"] or 1e30
        norm = model.clip_grad_norm_(limit) if flat else torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = torch.tensor([total], dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
    return dict(losses=losses, norms=norms, collectives=recorder.calls, parameters=names), full_parameters(model, flat)


def full_parameters(model, flat):
    if flat:
        with FullyShardedDataParallel.summon_full_params(model, writeback=False), torch.no_grad():
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor().detach() for p in model.parameters()]


def answer(cell, s, recorder):
    try:
        numbers, values = train(cell, s, recorder)
        kept = io.BytesIO()
        torch.save(values, kept)
        return dict(numbers, values=kept.getvalue())
    except Exception as e:  # noqa: BLE001 - becomes the cell's reason; the world is not used again
        return dict(error=f"{type(e).__name__}: {str(e)[:300]}")


def run_rank(rank, world, store, connection):
    """A rank's life: {cell, settings} -> what it gives, until the other end closes."""
    warnings.simplefilter("ignore")
    gc.freeze()  # what is imported stays; collections look at the cell's objects alone
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world), timeout=TIMEOUT)
    recorder = Recorder()
    with contextlib.suppress(EOFError):
        while True:
            out = answer(*connection.recv(), recorder)
            gc.collect()  # wrapped models are cycles
            connection.send(out if rank == 0 or "error" in out else {})
    os._exit(0)  # Gloo's threads now and then abort an interpreter that ends; the answers are out
