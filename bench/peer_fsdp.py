#!/usr/bin/env python3
"""One training run of PyTorch's own FSDP on CPU ranks, for comparison with `shardscope run`.

The model, weights, batch and optimizer are those of tests/data/goldens/README.md, so that losses can be compared number by
number. Gloo between processes, one thread a rank. What is timed is what shardscope times: after the warm-up, STEPS steps in a
row without a barrier between them, on the slowest rank, divided by STEPS.

  python-with-torch bench/peer_fsdp.py --impl fsdp2 --wrap block
Prints one JSON document: step_ns, cpu_ns (of rank 0's process, a step), losses, units, versions. With `--serve` it does so, for STEPS more
steps, at each line of its input, and ends with it: in between it waits without using the machine. `--impl single` is the same model
without FSDP, one process with one rank's batch. `--memory` measures memory instead of time: peak_bytes, the most bytes that
PyTorch's CPU allocator had given out in the last step, from events of the profiler that began before the model existed; over
PyTorch's fake process group, because Gloo's own buffers are counted there too and differ from run to run.
"""
import argparse
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness", "workload", "python"))
from counter_numbers import output, top_bits  # noqa: E402

TOKENS = 0x746F6B656E


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--impl", choices=["fsdp1", "fsdp2", "single"], required=True)
    p.add_argument("--wrap", default="block", help="root, blocks:K, block, sublayer (attention and feed-forward apart) or linear (each linear layer)")
    p.add_argument("--serve", action="store_true", help="`ready` after the warm-up, then a result for each line of the input, of as many more steps")
    p.add_argument("--memory", action="store_true", help="measure memory, over the fake process group")
    for name, value in dict(layers=4, dim=128, heads=4, ffn=352, vocab=512, seq=64, batch=4, world=2, steps=12, warmup=3, seed=0).items():
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--timeout", type=float, default=300, help="seconds for the whole run; with --serve who asks keeps the time")
    p.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    p.add_argument("--folder", default="", help=argparse.SUPPRESS)
    return p.parse_args()


# ---- the model -------------------------------------------------------------------------------------------------------
def build(a):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(a.dim))

        def forward(self, x):
            return F.rms_norm(x, (a.dim,), self.weight, 1e-5)

    half = a.dim // a.heads // 2
    angle = torch.tensor([[t * 10000.0 ** (-j / half) for j in range(half)] * 2 for t in range(a.seq)], dtype=torch.float64)
    cosine, sine = angle.cos().float(), angle.sin().float()

    def rotate(y):
        low, high = y[..., :half], y[..., half:]
        return (y * cosine + torch.cat((-high, low), -1) * sine).to(y.dtype)

    def linear(n_in, n_out):
        return nn.Linear(n_in, n_out, bias=False)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()
            self.wq, self.wk, self.wv, self.wo = (linear(a.dim, a.dim) for _ in range(4))

        def forward(self, x):
            batch, length, _ = x.shape
            n = self.norm(x)
            q, k, v = (w(n).view(batch, length, a.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
            o = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
            return x + self.wo(o.transpose(1, 2).reshape(x.shape))

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()
            self.w_gate, self.w_up, self.w_down = linear(a.dim, a.ffn), linear(a.dim, a.ffn), linear(a.ffn, a.dim)

        def forward(self, x):
            n = self.norm(x)
            return x + self.w_down(F.silu(self.w_gate(n)) * self.w_up(n))

    class Block(nn.Sequential):
        def __init__(self):
            super().__init__(Attention(), FeedForward())

    class Group(nn.Sequential):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(a.vocab, a.dim)
            blocks = [Block() for _ in range(a.layers)]
            if a.wrap.startswith("blocks:"):
                size = int(a.wrap.split(":")[1])
                blocks = [Group(*blocks[i:i + size]) for i in range(0, a.layers, size)]
            self.blocks = nn.ModuleList(blocks)
            self.norm = Norm()
            self.head = linear(a.dim, a.vocab)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Model()
    with torch.no_grad():
        for index, (name, w) in enumerate(model.named_parameters()):   # registration order is the goldens' order
            if "norm" not in name:
                u = top_bits(output(a.seed, index), w.numel(), 24).float()
                w.copy_(((u * 2.0**-23 - 1.0) * 2.0**-5).view_as(w))
    return model, {"root": (), "block": Block, "sublayer": (Attention, FeedForward), "linear": nn.Linear}.get(a.wrap, Group)


def batch_of(a):
    width = a.seq + 1
    numbers = top_bits(output(a.seed ^ TOKENS, 0), a.world * a.batch * width, 32) % a.vocab
    mine = numbers.view(a.world, a.batch, width)[a.rank]
    return mine[:, :-1].contiguous(), mine[:, 1:].reshape(-1)


def shard(a, model, unit):
    """-> the wrapped model and its number of units, root included. unit: a class or a tuple of classes; (): the root alone."""
    import torch
    if a.impl == "single":
        return model, 1
    if a.impl == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=set(unit) if isinstance(unit, tuple) else {unit})
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, forward_prefetch=True,
                                         device_id=torch.device("cpu"))
        return model, sum(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (a.world,))
    units = [m for m in model.modules() if isinstance(m, unit)]
    for m in units + [model]:
        fully_shard(m, mesh=mesh)
    return model, len(units) + 1


# ---- one rank --------------------------------------------------------------------------------------------------------
def trainer(a):
    """-> step() -> loss, and the number of units."""
    import torch
    from torch.nn import functional as F
    model, unit = build(a)
    model, units = shard(a, model, unit)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    tokens, targets = batch_of(a)

    def step():
        loss = F.cross_entropy(model(tokens).view(-1, a.vocab), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, units


def peak_of_last_step(a):
    """One process as rank 0 over collectives that do nothing: the peak of the allocator in the last of three steps, bytes."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, record_function
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.set_num_threads(1)
    a.rank = 0
    if a.impl != "single":
        dist.init_process_group("fake", rank=0, world_size=a.world, store=FakeStore())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step, units = trainer(a)
        for _ in range(2):
            step()
        with record_function("last step"):
            step()
    events = recorded.profiler.kineto_results.events()
    last = next(e for e in events if e.name() == "last step")
    begin, end = last.start_ns(), last.start_ns() + last.duration_ns()
    live = peak = 0
    for at, change in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += change
        if begin <= at < end:
            peak = max(peak, live)
    print(json.dumps(dict(impl=a.impl, wrap=a.wrap, units=units, peak_bytes=peak, torch=torch.__version__)), flush=True)
    os._exit(0)


def run_rank(a):
    import gc

    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=a.rank, world_size=a.world, store=dist.FileStore(os.path.join(a.folder, "store"), a.world))
    step, units = trainer(a)
    losses = []
    for _ in range(a.warmup):
        losses.append(step())
    gc.collect()
    gc.disable()               # the collector's pauses are Python's, not FSDP's

    def measure():
        dist.barrier()
        begin, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(a.steps):
            losses.append(step())
        cpu = time.process_time_ns() - cpu
        took = torch.tensor([time.perf_counter_ns() - begin], dtype=torch.int64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        mean = torch.stack(losses).double()
        dist.all_reduce(mean)
        return dict(impl=a.impl, wrap=a.wrap, units=units, step_ns=int(took) // a.steps, cpu_ns=cpu // a.steps, losses=(mean / a.world).tolist(),
                    torch=torch.__version__, threads=torch.get_num_threads(), cpu_capability=torch.backends.cpu.get_cpu_capability())

    def asked():
        """Does the input have another line? Rank 0 reads, all know."""
        more = torch.tensor([1 if a.rank == 0 and sys.stdin.readline() else 0])
        dist.all_reduce(more)
        return bool(more)

    if a.serve:
        if a.rank == 0:
            print(json.dumps(dict(ready=True)), flush=True)
        while asked():
            result = measure()
            if a.rank == 0:
                print(json.dumps(result), flush=True)
    else:
        result = measure()
        if a.rank == 0:
            with open(os.path.join(a.folder, "result.json"), "w", encoding="utf-8") as f:
                json.dump(result, f)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)                # Gloo's threads now and then abort an interpreter that ends; the result is on disk


def codes_of(ranks, deadline):
    """Of all, or as soon as one has failed, or at the deadline: None for a rank that still runs then."""
    while True:
        codes = [r.poll() for r in ranks]
        late = deadline is not None and time.monotonic() > deadline
        if late or None not in codes or any(codes):
            return codes
        time.sleep(0.05)


def main():
    a = arguments()
    if a.impl == "single":
        a.world = 1
    if a.memory:
        peak_of_last_step(a)
    if a.rank >= 0:
        run_rank(a)
    env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    with tempfile.TemporaryDirectory(prefix="peer_fsdp.") as folder:
        ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--rank", str(r), "--folder", folder], env=env, stdin=None if r == 0 else subprocess.DEVNULL)
                 for r in range(a.world)]
        codes = codes_of(ranks, None if a.serve else time.monotonic() + a.timeout)
        for r in ranks:
            if r.poll() is None:
                r.kill()
                r.wait()
        if a.serve:
            sys.exit(0 if codes == [0] * a.world else f"peer_fsdp: the ranks ended with {codes} (None: ended by force)")
        path = os.path.join(folder, "result.json")
        if not os.path.exists(path):
            sys.exit(f"peer_fsdp: no result; the ranks ended with {codes} (None: ended by force)")
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    assert all(math.isfinite(x) for x in result["losses"]), result["losses"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
