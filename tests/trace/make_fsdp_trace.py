#!/usr/bin/env python3
"""Makes real traces of PyTorch FSDP on CPU: make_fsdp_trace.py fsdp1|fsdp2 OUT_DIR [--stack]

Two ranks on Gloo train a small model of an embedding, three blocks and a head for two profiled steps; each writes
OUT_DIR/rank<r>.json. Blocks are units of their own; the rest belongs to the root. --stack: with Python's stacks, in
which the profiler names the modules that are called. Ends with 77 and the reason where there is no whole PyTorch.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
import whole_torch  # noqa: E402

whole_torch.need_here()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402

BLOCKS, STEPS, WORLD = 3, 2, 2


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, dim=32, vocab=64):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.layers = nn.ModuleList(Block(dim) for _ in range(BLOCKS))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def wrap(model, kind):
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        mesh = dist.init_device_mesh("cpu", (WORLD,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))


def rank_main(rank, kind, out, store, stack):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = wrap(Model(), kind)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        x = torch.randint(0, 64, (2, 8))
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=stack,
                                schedule=torch.profiler.schedule(wait=0, warmup=0, active=STEPS, repeat=1),
                                on_trace_ready=lambda p: p.export_chrome_trace(f"{out}/rank{rank}.json")) as p:
        for _ in range(STEPS):
            step()
            p.step()
    dist.destroy_process_group()


def main():
    kind, out = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(out, exist_ok=True)
    store = os.path.join(out, "store")
    if os.path.exists(store):
        os.remove(store)
    mp.spawn(rank_main, args=(kind, out, store, "--stack" in sys.argv), nprocs=WORLD)
    if os.path.exists(store):
        os.remove(store)


if __name__ == "__main__":
    main()
