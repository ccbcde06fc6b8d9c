#!/usr/bin/env python3
"""`peer_fsdp.py` with two more decisions: parameters kept for backward, and blocks recomputed in backward.

Takes its options; KEEP=1 in the environment keeps parameters after forward (FSDP2: reshard_after_forward=False, FSDP1: SHARD_GRAD_OP),
CHECKPOINT=1 recomputes each block. A program of its own, so that peaks measured with `peer_fsdp.py` stay those of that program.
"""
import functools
import os

import peer_fsdp


def checkpointed(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
                                   check_fn=lambda m: type(m).__name__ == "Block")


def shard(a, model, unit):
    import torch
    if os.environ.get("CHECKPOINT") == "1":
        checkpointed(model)
    if os.environ.get("KEEP") != "1" or a.impl == "single":
        return plain_shard(a, model, unit)
    if a.impl == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=set(unit) if isinstance(unit, tuple) else {unit})
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, forward_prefetch=True,
                                         sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, device_id=torch.device("cpu"))
        return model, sum(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (a.world,))
    units = [m for m in model.modules() if isinstance(m, unit)]
    for m in units + [model]:
        fully_shard(m, mesh=mesh, reshard_after_forward=False)
    return model, len(units) + 1


plain_shard = peer_fsdp.shard
peer_fsdp.shard = shard
peer_fsdp.__file__ = __file__   # the ranks are started from this file

if __name__ == "__main__":
    peer_fsdp.main()
