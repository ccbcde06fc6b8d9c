#!/usr/bin/env python3
"""PyTorch's own predictor of memory (FSDPMemTracker on fake tensors) beside the virtual world: time, and error against a real run.

  scripts/dependencies --full && scripts/quickstart
  bench/mem_tracker.py [--python PYTHON] [--program build/bin/shardscope]

Small: both predict a model that is then run for real, FSDP2 in PyTorch and `--device cpu` here; each is held against its own run, bytes of
its allocator at the peak of forward and backward (on fake tensors the tracker counts the optimizer's state several times over during the
update, so that its own peak over a whole step is no prediction). Large: a Llama-3-8B (with a key/value head for each head, as bench/peer_fsdp.py builds it) on 8 ranks,
predicted only. Time: from the start of the process, and of the prediction alone (here: a worker that is warm, second of two cases).
"""
import argparse
import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SMALL = dict(layers=8, dim=256, heads=8, ffn=704, vocab=4096, seq=128, batch=2, world=2)
LARGE = dict(layers=32, dim=4096, heads=32, ffn=14336, vocab=128256, seq=2048, batch=1, world=8)
MIB = 2**20


# ---- in the other Python -----------------------------------------------------------------------------------------------------------
def tracked(config, real):
    """One rank with a process group whose collectives do nothing: prediction by the tracker, or a real step under the profiler."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore
    sys.path.insert(0, str(ROOT / "bench"))
    import peer_fsdp
    peer_fsdp.top_bits = lambda seed, count, bits: torch.zeros(count)   # values do not matter here
    a = argparse.Namespace(**config, impl="fsdp2", wrap="block", seed=0, rank=0)
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=a.world, store=FakeStore())
    from torch.distributed import device_mesh
    mesh = device_mesh.init_device_mesh("cpu", (a.world,))
    device_mesh.init_device_mesh = lambda *_: mesh   # its ranks must be real tensors: made outside of the fake mode
    begin = time.perf_counter()
    with contextlib.nullcontext() if real else FakeTensorMode():
        model, unit = peer_fsdp.build(a)
        model, _ = peer_fsdp.shard(a, model, unit)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        tokens = torch.zeros((a.batch, a.seq + 1), dtype=torch.int64)

        def passes():
            F.cross_entropy(model(tokens[:, :-1]).view(-1, a.vocab), tokens[:, 1:].reshape(-1)).backward()

        def update():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        if real:
            passes()
            update()
            peak = profiled_peak(torch, passes) + sum(t.numel() * t.element_size() for t in state_of(model, optimizer))
        else:
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((tokens,))
            for _ in range(2):   # the second holds the optimizer's state from its beginning
                with tracker:
                    passes()
                peak = next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]
                with tracker:
                    update()
                tracker.reset_mod_stats()
    return {"peak_bytes": peak, "seconds": time.perf_counter() - begin}


def state_of(model, optimizer):
    """Tensors that live through a step: shards, moments, buffers."""
    yield from (p.to_local() if hasattr(p, "to_local") else p for p in model.parameters())
    for s in optimizer.state.values():
        yield from (v.to_local() if hasattr(v, "to_local") else v for v in s.values() if hasattr(v, "numel"))


def profiled_peak(torch, step):
    """The highest sum of allocations less frees during a step, from the allocator's own events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json.gz")
        profiler.export_chrome_trace(path)
        with gzip.open(path, "rt", encoding="utf-8") as f:
            events = [e for e in json.load(f)["traceEvents"] if e.get("name") == "[memory]" and e["args"].get("Device Type") == 0]
    live = peak = 0
    for e in sorted(events, key=lambda e: e["ts"]):
        live += e["args"]["Bytes"]
        peak = max(peak, live)
    return peak


# ---- here --------------------------------------------------------------------------------------------------------------------------
def theirs(python, config, real):
    begin = time.perf_counter()
    done = subprocess.run([python, __file__, "--tracked", json.dumps(config), *(["--real"] if real else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"mem_tracker: {done.stderr.strip().splitlines()[-1]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_seconds": time.perf_counter() - begin}


def settings(config):
    dims = ",".join(f"{k}={config[k]}" for k in ("layers", "dim", "heads", "ffn", "vocab")) + f",kv_heads={config['heads']}"
    return {"set": dims, "seq": config["seq"], "batch": config["batch"], "world": config["world"], "steps": 1, "warmup": 1}


def ours(program, config, device):
    begin = time.perf_counter()
    words = [w for k, v in settings(config).items() for w in ("--" + k, str(v))]
    done = subprocess.run([program, "run", "--json", "--device", device, *words], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"mem_tracker: {done.stderr.strip()}")
    return {"peak_bytes": json.loads(done.stdout)["peak_bytes"], "process_seconds": time.perf_counter() - begin}


def warm_seconds(program, config):
    """Of the later cases of a sweep: each differs from the others by its seed alone."""
    spec = {"name": "warm", "base": {"device": "virtual", **settings(config)}, "axes": {"seed": list(range(9))},
            "trace": "none"}
    with tempfile.TemporaryDirectory() as folder:
        def sweep(count):
            spec["axes"]["seed"] = list(range(count))
            path = pathlib.Path(folder, f"{count}.yaml")
            path.write_text(json.dumps(spec), encoding="utf-8")   # JSON is YAML
            begin = time.perf_counter()
            subprocess.run([program, "sweep", str(path), "-o", str(pathlib.Path(folder, str(count)))], capture_output=True, check=True)
            return time.perf_counter() - begin
        return (sweep(18) - sweep(2)) / 16


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=str(pathlib.Path.home() / ".cache" / "shardscope" / "torch-2.11.0" / "bin" / "python"), help="with the whole PyTorch")
    p.add_argument("--program", default=str(ROOT / "build" / "bin" / "shardscope"))
    p.add_argument("--tracked", help=argparse.SUPPRESS)
    p.add_argument("--real", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.tracked:
        print(json.dumps(tracked(json.loads(a.tracked), a.real)))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n\n| model | predictor | predicted MiB | measured MiB | error | whole process s | prediction alone s |\n"
          "|---|---|---|---|---|---|---|")
    real, fake = theirs(a.python, SMALL, True), theirs(a.python, SMALL, False)
    print(row("small", "FSDPMemTracker", fake, real, fake["seconds"]))
    print(row("small", "virtual", ours(a.program, SMALL, "virtual"), ours(a.program, SMALL, "cpu"), warm_seconds(a.program, SMALL)))
    large = theirs(a.python, LARGE, False)
    print(row("Llama-3-8B, 8 ranks", "FSDPMemTracker", large, None, large["seconds"]))
    print(row("Llama-3-8B, 8 ranks", "virtual", ours(a.program, LARGE, "virtual"), None, warm_seconds(a.program, LARGE)))


def row(model, who, predicted, measured, seconds):
    error = f"{predicted['peak_bytes'] / measured['peak_bytes'] - 1:+.2%}" if measured else "-"
    known = f"{measured['peak_bytes'] / MIB:,.2f}" if measured else "-"
    return f"| {model} | {who} | {predicted['peak_bytes'] / MIB:,.2f} | {known} | {error} | {predicted['process_seconds']:.2f} | {seconds:.3f} |"


if __name__ == "__main__":
    main()
