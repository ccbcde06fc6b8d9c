#!/usr/bin/env python3
"""What one more unit costs the host, here and in PyTorch's FSDP1 and FSDP2: (step wrapped by block - step as one unit) / 32.

  scripts/dependencies --full; cmake --build --preset cpu --target host_overhead
  bench/host_overhead.py [--rounds 7] [-o bench/results/host_overhead]

A model of 32 tiny blocks (dim 32, one head, ffn 64, vocabulary 64, sequence 8, batch 1), one rank of two, one thread, over
collectives that return at once: PyTorch's fake process group, and a transport that copies as that does. Each round measures
all arms one after the other; the table has the medians over rounds, of wall time and of CPU time.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peer_fsdp  # noqa: E402
import side_by_side  # noqa: E402

UNITS = 32
SHAPE = dict(layers=UNITS, dim=32, heads=1, ffn=64, vocab=64, seq=8, batch=1, world=2, seed=0, rank=0)
LIMIT = 0.1   # of the smaller of PyTorch's two


def peer(steps):
    """Answers one line a round: times of both wraps of both FSDPs. Runs under the Python that has PyTorch."""
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=SHAPE["world"], store=FakeStore())

    def trainer(impl, wrap):
        a = argparse.Namespace(**SHAPE, impl=impl, wrap="block")
        model, block = peer_fsdp.build(a)
        model, _ = peer_fsdp.shard(a, model, block if wrap == "block" else ())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        tokens, targets = peer_fsdp.batch_of(a)

        def step():
            F.cross_entropy(model(tokens).view(-1, a.vocab), targets).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for _ in range(5):
            step()
        return step

    trainers = {(impl, wrap): trainer(impl, wrap) for impl in ("fsdp1", "fsdp2") for wrap in ("root", "block")}
    for _ in sys.stdin:
        answer = {}
        for (impl, wrap), step in trainers.items():
            begin, cpu = time.perf_counter_ns(), time.process_time_ns()
            for _ in range(steps):
                step()
            answer.setdefault(impl, {})[wrap] = dict(step_ns=(time.perf_counter_ns() - begin) // steps, cpu_ns=(time.process_time_ns() - cpu) // steps)
        print(json.dumps(answer), flush=True)
    os._exit(0)


def arguments():
    cache = os.environ.get("SHARDSCOPE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shardscope")
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=20, help="timed steps of one arm in a round")
    p.add_argument("--program", default=str(side_by_side.ROOT / "build/bin/host_overhead"))
    p.add_argument("--python", default=os.environ.get("SHARDSCOPE_PYTHON", os.path.join(cache, "torch-2.11.0/bin/python")), help="with PyTorch")
    p.add_argument("-o", "--output", default=str(side_by_side.ROOT / "bench/results/host_overhead"), help="path without ending")
    p.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def measure(a):
    """-> arm -> list over rounds of {wrap: {step_ns, cpu_ns}}"""
    theirs = subprocess.Popen([a.python, "-W", "ignore", __file__, "--peer", "--steps", str(a.steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    rounds = {"ours": [], "fsdp1": [], "fsdp2": []}
    for _ in range(a.rounds):
        done = subprocess.run([a.program, str(a.steps), "1"], capture_output=True, text=True, timeout=300, check=True)
        rounds["ours"].append(json.loads(done.stdout))
        theirs.stdin.write("\n")
        theirs.stdin.flush()
        for impl, times in json.loads(theirs.stdout.readline()).items():
            rounds[impl].append(times)
        print({arm: f"{(r[-1]['block']['step_ns'] - r[-1]['root']['step_ns']) / UNITS / 1e3:.1f} us" for arm, r in rounds.items()}, file=sys.stderr, flush=True)
    theirs.stdin.close()
    theirs.wait(timeout=30)
    return rounds


def per_unit(rounds, key):
    return statistics.median((r["block"][key] - r["root"][key]) / UNITS for r in rounds)


def main():
    a = arguments()
    if a.peer:
        return peer(a.steps)
    for needed in (a.program, a.python):
        if not os.access(needed, os.X_OK):
            sys.exit(f"host_overhead: no {needed}; build the target host_overhead, and run scripts/dependencies --full")
    machine = side_by_side.machine()
    rounds = measure(a)
    rows = [dict(arm=arm, unit_ns=per_unit(r, "step_ns"), unit_cpu_ns=per_unit(r, "cpu_ns"),
                 **{f"{wrap}_step_ns": statistics.median(x[wrap]["step_ns"] for x in r) for wrap in ("root", "block")}) for arm, r in rounds.items()]
    ours, best = rows[0], {key: min(r[key] for r in rows[1:]) for key in ("unit_ns", "unit_cpu_ns")}
    ratio = {key: ours[key] / best[key] for key in best}
    command = " ".join(["bench/host_overhead.py"] + sys.argv[1:])
    lines = ["# Host time of one unit", "",
             f"{datetime.date.today().isoformat()}, {machine['cpu']}, {machine['cores']} cores, load {machine['load_before']:.2f} before; revision {side_by_side.revision()}.",
             f"(step by block - step as one unit) / {UNITS}: {UNITS} blocks of dim 32, sequence 8; one rank of two over collectives that return at once, one thread.",
             f"Medians of {a.rounds} rounds of {a.steps} steps. Command: `{command}`", "",
             "| runtime | one unit | its CPU time | step as one unit | step by block |", "|---|---|---|---|---|"]
    lines += [f"| {r['arm']} | {r['unit_ns'] / 1e3:.1f} us | {r['unit_cpu_ns'] / 1e3:.1f} us | {r['root_step_ns'] / 1e6:.2f} ms | {r['block_step_ns'] / 1e6:.2f} ms |" for r in rows]
    lines += ["", f"Ours over the smaller of PyTorch's: {ratio['unit_ns']:.3f} of the wall time, {ratio['unit_cpu_ns']:.3f} of the CPU time (at most {LIMIT})."]
    output = pathlib.Path(a.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    output.with_suffix(".json").write_text(json.dumps(dict(date=datetime.date.today().isoformat(), machine=machine, revision=side_by_side.revision(), command=command,
                                                           ratio=ratio, rows=rows, rounds=rounds), indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if max(ratio.values()) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
