"""The same cases under this program's runtime and under PyTorch's own FSDP2 and FSDP1: equal losses, units, collectives and
bytes; partitions that sum to the step; failures that become rows. Skipped where the Python of the wheel is not the whole PyTorch.
"""
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import whole_torch  # noqa: E402
from processes import lives, processor_s  # noqa: E402
from command import PROGRAM, Checks, call, run_json  # noqa: E402

check = Checks()
SMALL = {"set": "layers=2,dim=32,heads=4,kv_heads=2,ffn=88,vocab=96", "seq": 16, "steps": 4, "warmup": 2, "world": 2}
CASES = [("fsdp2", {"wrap": "sublayer", "clip": 0.5}), ("fsdp2", {"wrap": "blocks:2", "checkpoint": "block"}),
         ("fsdp2", {"wrap": "class:Linear", "backward_prefetch": "pre:2", "accumulate": 2, "accumulate_sync": "last"}),
         ("fsdp2", {"strategy": "shard_grad_op", "optimizer": "sgd"}),
         ("fsdp1", {"strategy": "shard_grad_op", "accumulate": 2}), ("fsdp1", {"strategy": "no_shard", "clip": 0.5}),
         ("fsdp1", {"wrap": "class:Linear", "backward_prefetch": "post", "forward_prefetch": 0})]
BLOCKS = "layers=2,dim=32,heads=4,kv_heads=4,ffn=64"
FAMILIES = [("fsdp2", "gpt2", BLOCKS + ",vocab=96,positions=16"), ("fsdp1", "gpt-neox", BLOCKS + ",vocab=96"), ("fsdp2", "t5", BLOCKS + ",vocab=96"),
            ("fsdp1", "mlp", "layers=2,dim=32,ffn=64,classes=8"), ("fsdp2", "embedding-classifier", BLOCKS + ",vocab=96,classes=8")]
PARTS = ["compute", "overlapped", "exposed_all_gather_forward", "exposed_all_gather_backward", "exposed_reduce_scatter", "exposed_other", "copy",
         "host", "memory_wait", "optimizer", "idle"]


def close(a, b, tolerance):
    return len(a) == len(b) and len(a) > 0 and all(abs(x - y) <= tolerance * abs(y) for x, y in zip(a, b))


def partition_of(row):
    return [row[f"{part}_ns"] for part in PARTS]


def same_work(runtime, more, model="llama"):
    case = {**SMALL, "model": model, **more}
    layout = {"fsdp2": "per_parameter", "fsdp1": "flat"}[runtime]
    ours, theirs = run_json({**case, "collectives": "gloo", "layout": layout}), run_json({**case, "runtime": runtime})
    what = f"{runtime} {model} {more}"
    check(theirs["status"] == "ok", f"{what}: {theirs['status']} {theirs.get('reason')}")
    if theirs["status"] != "ok":
        return
    check(close(theirs["losses"], ours["losses"], 1e-5), f"{what}: losses {theirs['losses'][:3]}, ours {ours['losses'][:3]}")
    kept = len(theirs["grad_norms"])
    check(kept == case["warmup"] and close(theirs["grad_norms"], ours["grad_norms"][:kept], 1e-4), f"{what}: norms {theirs['grad_norms']}, ours {ours['grad_norms']}")
    check(theirs["units"] == ours["units"], f"{what}: {theirs['units']} units for {ours['units']}")
    parts = partition_of(theirs)
    check(sum(parts) == theirs["traced_step_ns"], f"{what}: parts sum to {sum(parts)}, the step is {theirs['traced_step_ns']}")
    check(theirs["compute_ns"] > 0 and theirs["copy_ns"] > 0 and theirs["optimizer_ns"] > 0, f"{what}: {parts}")
    check(theirs["peak_bytes"] > 0, f"{what}: no memory")
    if not {"clip", "strategy"} & set(more):  # their norms and no_shard's sums are collectives of PyTorch's own
        check(theirs["collectives"] == ours["collectives"], f"{what}: {theirs['collectives']} collectives for {ours['collectives']}")
        padding = 0 if runtime == "fsdp2" else 0.02  # FSDP1 pads a flat parameter to the ranks, we to 128 bytes
        check(close([theirs["communicated_bytes"]], [ours["communicated_bytes"]], padding),
              f"{what}: {theirs['communicated_bytes']} bytes for {ours['communicated_bytes']}")


def failures_become_rows():
    row = run_json({**SMALL, "runtime": "fsdp2"}, env={"SHARDSCOPE_PYTHON": "/nonexistent/python"})
    check(row["status"] == "skipped" and "SHARDSCOPE_PYTHON" in row["reason"], f"no python: {row['status']} {row['reason']}")
    with tempfile.TemporaryDirectory() as folder:
        bare = pathlib.Path(folder) / "python"  # one that finds no torch
        bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
        bare.chmod(0o755)
        row = run_json({**SMALL, "runtime": "fsdp2"}, env={"SHARDSCOPE_PYTHON": str(bare)})
    check(row["status"] == "skipped" and "cannot import torch" in row["reason"], f"no torch: {row['status']} {row['reason']}")


def ranks_of(pid):
    out = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in out.splitlines() if "fsdp_rank.py" in line]


def a_killed_or_stopped_rank_is_named():
    for fault, status, words in ((signal.SIGKILL, "crashed", "rank 1"), (signal.SIGSTOP, "timeout", "rank 1")):
        command = [PROGRAM, "run", "--json", "--runtime", "fsdp2", "--steps", "100000", "--step-timeout", "10s"]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end, ranks = time.monotonic() + 60, []
        while time.monotonic() < end and not (len(ranks) == 2 and all(processor_s(r) > 4.0 for r in ranks)):
            time.sleep(0.05)
            ranks = ranks_of(p.pid)
        order = sorted(ranks)
        os.kill(order[1], fault)
        began = time.monotonic()
        out, _ = p.communicate(timeout=60)
        row = json.loads(out)
        check(row["status"] == status and row["reason"].startswith(words), f"{fault.name}: {row['status']} {row['reason']}")
        check(time.monotonic() - began < 20, f"{fault.name}: ended after {time.monotonic() - began:.1f} s")
        check(not any(lives(r) for r in ranks), f"{fault.name}: orphans")


def one_sweep_holds_all():
    with tempfile.TemporaryDirectory() as folder:
        spec, out = pathlib.Path(folder) / "s.yaml", pathlib.Path(folder) / "out"
        spec.write_text("base: {set: 'layers=2,dim=32,heads=4,kv_heads=2,ffn=88,vocab=96', seq: 16, steps: 2, collectives: gloo}\n"
                        "repeat: {min: 1, max: 1}\naxes: {runtime: [shardscope, fsdp2, fsdp1], wrap: [block, sublayer]}\n")
        done = call("sweep", str(spec), "-o", str(out))
        check(done.returncode == 0, f"sweep: exit {done.returncode} {done.stderr[-400:]}")
        rows = sqlite3.connect(out / "results.db").execute("SELECT status FROM cases ORDER BY case_index").fetchall()
        check([r[0] for r in rows] == ["ok"] * 5 + ["config_error"], f"rows of the sweep: {rows}")
        done = call("report", str(out))
        check(done.returncode == 0 and (out / "report.html").stat().st_size > 100_000, f"report: exit {done.returncode} {done.stderr[-400:]}")
        done = call("recommend", str(out), "--for", "runtime shardscope", "--confirm")
        text = done.stdout
        check(done.returncode == 0 and "Run under PyTorch's own FSDP2" in text, f"recommend --confirm: exit {done.returncode} {done.stderr[-300:]}")
        check(text.count(" a step (") == 2 and ("The choice holds" in text or "The choice does NOT hold" in text or "is not told apart" in text), text)
        compile(text, "policy.py", "exec")


def main():
    python = os.environ.get("SHARDSCOPE_PYTHON") or sys.executable
    why = whole_torch.why_not(python)
    if why:
        whole_torch.skip(python, why)
    os.environ["SHARDSCOPE_PYTHON"] = python
    for runtime, more in CASES:
        same_work(runtime, more)
    for runtime, model, dimensions in FAMILIES:
        same_work(runtime, {"set": dimensions}, model)
    failures_become_rows()
    a_killed_or_stopped_rank_is_named()
    one_sweep_holds_all()
    check.done()


if __name__ == "__main__":
    main()
