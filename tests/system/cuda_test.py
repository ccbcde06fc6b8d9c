"""Device cuda beside device cpu, for whole runs: losses, the marks of an emulated row, what an out-of-memory says. Needs a GPU; without one, or
built without CUDA, the command has to say so with exit code 3, and the rest is skipped (77)."""
import sys

from command import Checks, call, run_json

check = Checks()
SMALL = {"set": "layers=4,dim=128,heads=4,kv_heads=4,ffn=352,vocab=512", "seq": 64, "batch": 2, "steps": 5, "warmup": 0}

probe = call("run", "--device", "cuda", "--world", "1")
if probe.returncode == 3:
    print(probe.stderr.strip())
    check(probe.stderr.startswith("shardscope: [device] ") and probe.stderr.count("\n") == 1, f"one sentence: {probe.stderr}")
    check("--device virtual" in probe.stderr, "with a remedy")
    if check.failed == 0:
        sys.exit(77)
check(probe.returncode == 0, f"run --device cuda: exit {probe.returncode}: {probe.stderr}")

for change in ({}, {"wrap": "root"}, {"strategy": "no_shard"}, {"clip": "0.5"}, {"layout": "per_parameter"}, {"accumulate": 2}, {"checkpoint": "block"},
               {"nccl_buffers": "registered"}, {"nccl_ctas": "2-8"}):
    here = {k: v for k, v in change.items() if not k.startswith("nccl")}
    cpu = run_json({**SMALL, **here, "device": "cpu", "world": 1})
    gpu = run_json({**SMALL, **change, "device": "cuda", "world": 1})
    for a, b in zip(cpu["losses"], gpu["losses"], strict=True):
        check(abs(a - b) <= 1e-4 * abs(a), f"{change}: loss {b} on the GPU, {a} on the CPU")
    check(gpu["status"] == "ok", f"{change}: {gpu['status']}")

emulated = run_json({**SMALL, "device": "cuda", "world": 8, "wire": "50us,100GB/s"})
check(emulated["emulated"] is True, "one GPU for eight ranks is marked emulated")
oom = run_json({**SMALL, "device": "cuda", "world": 1, "memory_budget": "4MiB"})
check(oom["status"] == "oom" and "reserved" in oom["reason"], f"out of memory with the allocator's figures: {oom['reason']}")
check.done()
