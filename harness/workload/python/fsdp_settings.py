"""PyTorch's own FSDP over a model, as a job of shardscope asks: what each setting is called there.

What PyTorch cannot express is refused before a rank starts (harness/sweep/runtime_limits.h); here is only the mapping.
Sources: torch.distributed.fsdp of PyTorch 2.11, fully_shard (FSDP2) and FullyShardedDataParallel (FSDP1).
"""
import contextlib
import functools

import torch
from torch.utils.checkpoint import checkpoint

DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_of(name):
    """None for "auto" and its like: as it is."""
    return DTYPE.get(name)


class Wrapped:
    """A model under FSDP; `units` are (name, first module) in the order of the plan."""

    def __init__(self, module, units):
        self.module, self.units = module, units

    def begin_micro_batch(self, sync, last):
        """Before its forward. -> a context in which forward and backward run."""
        raise NotImplementedError

    def clip(self, limit):
        """-> the norm of all gradients"""
        raise NotImplementedError


def checkpointed(module, blocks):
    for m in module.modules():
        if isinstance(m, blocks):
            m.forward = functools.partial(checkpoint, m.forward, use_reentrant=False)


# ---- FSDP2 -----------------------------------------------------------------------------------------------------------
class Fsdp2(Wrapped):
    def begin_micro_batch(self, sync, last):
        self.module.set_requires_gradient_sync(sync)
        self.module.set_requires_all_reduce(last)  # hybrid: across groups only once a step
        return contextlib.nullcontext()

    def clip(self, limit):
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def mesh_of(device, world, group):
    from torch.distributed.device_mesh import init_device_mesh

    if group:
        return init_device_mesh(device, (world // group, group), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device, (world,))


def prefetch_explicitly(wrapped, settings):
    """Depths beyond PyTorch's own: none in forward, one in backward."""
    modules = [m for _, m in wrapped]
    ahead = int(settings["forward_prefetch"])
    for i, m in enumerate(modules):
        following = modules[i + 1:i + 1 + ahead]
        if following:
            m.set_modules_to_forward_prefetch(following)
    mode, _, depth = settings["backward_prefetch"].partition(":")
    if mode == "pre" and int(depth or 1) > 1:
        for i, m in enumerate(modules):
            before = modules[max(0, i - int(depth)):i][::-1]
            if before:
                m.set_modules_to_backward_prefetch(before)


def fsdp2(module, job, device):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    s, plan = job["settings"], job["pytorch"]
    mesh = mesh_of(device.type, job["world"], plan["group"])
    at = dict(module.named_modules())
    wrapped, root = [], {}
    for unit in plan["units"]:
        policy = MixedPrecisionPolicy(param_dtype=dtype_of(unit["param_dtype"]), reduce_dtype=dtype_of(unit["reduce_dtype"]),
                                      output_dtype=dtype_of(unit["output_dtype"]))
        options = dict(mesh=mesh, mp_policy=policy, reshard_after_forward=unit["reshard"])
        if unit["root"]:
            root = options
        else:
            wrapped.append((unit["name"], [at[path] for path in unit["modules"]], options))
    # A unit inside another comes first: what it holds is no longer the outer one's.
    for _, modules, options in sorted(wrapped, key=lambda w: -max(depth_of(at, m) for m in w[1])):
        fully_shard(modules if len(modules) > 1 else modules[0], **options)
    if not root:
        root = dict(mesh=mesh)
    fully_shard(module, **root)
    prefetch_explicitly([(name, modules[0]) for name, modules, _ in wrapped], s)
    return Fsdp2(module, [("root", module)] + [(name, modules[0]) for name, modules, _ in wrapped])


def depth_of(at, module):
    return next(path.count(".") + 1 if path else 0 for path, m in at.items() if m is module)


# ---- FSDP1 -----------------------------------------------------------------------------------------------------------
class Fsdp1(Wrapped):
    def begin_micro_batch(self, sync, last):
        return contextlib.nullcontext() if sync else self.module.no_sync()

    def clip(self, limit):
        return self.module.clip_grad_norm_(limit)


def fsdp1(module, job, device):
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy

    s, plan = job["settings"], job["pytorch"]
    at = dict(module.named_modules())
    chosen = {id(at[unit["modules"][0]]): unit["name"] for unit in plan["units"] if not unit["root"]}
    mixed = None
    if s["param_dtype"] != "fp32" or s["reduce_dtype"] not in ("fp32", "param"):
        mixed = MixedPrecision(param_dtype=dtype_of(s["param_dtype"]), reduce_dtype=dtype_of(s["reduce_dtype"]))
    mode = s["backward_prefetch"].partition(":")[0]

    def is_unit(module, recurse, nonwrapped_numel):
        return recurse or id(module) in chosen

    wrapped = FullyShardedDataParallel(
        module, sharding_strategy=ShardingStrategy[s["strategy"].partition(":")[0].upper()], mixed_precision=mixed, use_orig_params=True,
        auto_wrap_policy=is_unit, device_id=device, forward_prefetch=int(s["forward_prefetch"]) > 0,
        limit_all_gathers=s["max_inflight"] == "auto",
        backward_prefetch={"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}[mode])
    units = [("root", wrapped)]
    units += [(chosen[id(m.module)], m) for m in FullyShardedDataParallel.fsdp_modules(wrapped) if id(m.module) in chosen]
    return Fsdp1(wrapped, units)


def wrap(module, job, device):
    return (fsdp2 if job["settings"]["runtime"] == "fsdp2" else fsdp1)(module, job, device)
