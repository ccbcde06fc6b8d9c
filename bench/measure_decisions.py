#!/usr/bin/env python3
"""Pairs of settings measured on this machine, for `published_decisions`: ours over an emulated wire, FSDP2 and FSDP1 over Gloo.

  bench/measure_decisions.py [--rounds 5] [-o tests/data/published]

Each pair differs from the usual settings (a unit for each block, resharded, prefetch before) in one thing. All settings of a model are
measured in interleaved rounds; a time is the least of all steps, since other programs only add to a step, and a pair's noise is how far
the ratios of the first and the second half of the rounds are from each other, at least half a percent. This machine's costs are
measured before: `shardscope calibrate` for ours; for PyTorch its operators relative to ours (one rank, without FSDP, four shapes), its
collectives (Gloo, by size), and what a unit costs its host (bench/results/host_overhead.json). No pair is used for any of them.
Writes decisions_measured.csv, machine.yaml, machine_fsdp2.yaml and machine_fsdp1.yaml.
"""
import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORLD, SEED = 2, 1234
MODELS = {"small": dict(layers=4, dim=128, heads=4, ffn=352, vocab=512, seq=64, batch=4),
          "deep": dict(layers=12, dim=96, heads=4, ffn=256, vocab=512, seq=64, batch=2),
          "wide": dict(layers=3, dim=320, heads=5, ffn=864, vocab=1024, seq=64, batch=2)}
WIRES = ["200us,2GB/s", "1ms,500MB/s"]
OURS = [("wrap", {"wrap": "root"}), ("wrap", {"wrap": "blocks:2"}), ("wrap", {"wrap": "sublayer"}), ("wrap", {"wrap": "class:Linear"}),
        ("prefetch", {"backward_prefetch": "none"}), ("prefetch", {"backward_prefetch": "post"}), ("prefetch", {"forward_prefetch": "0"}),
        ("prefetch", {"forward_prefetch": "0", "backward_prefetch": "none"}), ("reshard", {"reshard_after_forward": "false"}),
        ("strategy", {"strategy": "shard_grad_op"}), ("strategy", {"strategy": "no_shard"}), ("checkpoint", {"checkpoint": "block"})]
PEER = [("wrap", {"wrap": "root"}), ("wrap", {"wrap": "blocks:2"}), ("wrap", {"wrap": "sublayer"}), ("wrap", {"wrap": "class:Linear"}),
        ("strategy", {"strategy": "shard_grad_op"}), ("checkpoint", {"checkpoint": "block"})]
COLUMNS = ["id", "runtime", "kind", "model", "set", "seq", "batch", "wire", "changed", "from_ms", "to_ms", "ratio", "noise", "rounds", "date"]


def arguments():
    cache = os.environ.get("SHARDSCOPE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shardscope")
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    p.add_argument("--runtime", nargs="+", choices=["shardscope", "fsdp2", "fsdp1"], default=["shardscope", "fsdp2", "fsdp1"])
    p.add_argument("--program", default=str(ROOT / "build/bin/shardscope"))
    p.add_argument("--python", default=os.environ.get("SHARDSCOPE_PYTHON", os.path.join(cache, "torch-2.11.0/bin/python")), help="with PyTorch")
    p.add_argument("-o", "--output", default=str(ROOT / "tests/data/published"))
    return p.parse_args()


def text(settings):
    return " ".join(f"{k}={v}" for k, v in settings.items()) or "default"


def dims(shape):
    return ",".join(f"{k}={shape[k]}" for k in ("layers", "dim", "heads", "ffn", "vocab")) + f",kv_heads={shape['heads']}"


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"measure_decisions: exit {done.returncode} of: {' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Ours:
    """A process for each round: the least step of it."""

    def __init__(self, a, shape, wire, settings):
        self.command = [a.program, "run", "--json", "--model", "llama", "--set", dims(shape), "--seq", str(shape["seq"]), "--batch", str(shape["batch"]),
                        "--world", str(WORLD), "--wire", wire, "--steps", "1", "--repetitions", "40"]
        for key, value in settings.items():
            self.command += ["--" + key.replace("_", "-"), value]

    def least(self):
        return min(run(self.command)["samples_ns"])

    def end(self):
        pass


class Peer:
    """Keeps its processes; each request is a step."""

    def __init__(self, a, shape, impl, settings):
        wrap = {"class:Linear": "linear"}.get(settings.get("wrap", "block"), settings.get("wrap", "block"))
        command = [a.python, str(ROOT / "bench/decision_peer.py"), "--serve", "--impl", impl, "--wrap", wrap, "--steps", "1", "--warmup", "3", "--seed", str(SEED)]
        command += [word for k, v in dict(shape, world=WORLD).items() for word in (f"--{k}", str(v))]
        env = dict(os.environ, KEEP=str(int("strategy" in settings)), CHECKPOINT=str(int("checkpoint" in settings)))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"measure_decisions: no answer of {' '.join(self.process.args)}")
        return json.loads(line)

    def least(self):
        steps = []
        for _ in range(12):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            steps.append(self.answer()["step_ns"])
        return min(steps)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def pairs_of(arms, choices, rounds, label):
    """{} is the usual arm. -> rows without their names."""
    times = {key: [] for key in arms}
    for number in range(rounds):
        for key, arm in arms.items():
            times[key].append(arm.least())
        print(f"{label}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    for arm in arms.values():
        arm.end()
    usual = times["default"]
    rows = []
    for kind, settings in choices:
        other = times[text(settings)]
        half = rounds // 2
        halves = [min(other[h]) / min(usual[h]) for h in (slice(0, half), slice(half, rounds))]
        rows.append(dict(kind=kind, changed=text(settings), from_ms=round(min(usual) / 1e6, 4), to_ms=round(min(other) / 1e6, 4),
                         ratio=round(min(other) / min(usual), 4), noise=round(max(0.005, abs(math.log(halves[0] / halves[1])) / 2), 4), rounds=rounds))
    return rows


# ---- PyTorch's costs on this machine ---------------------------------------------------------------------------------
GLOO = """
import json, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(store, 2))
out = {}
for kind in ("all_gather", "reduce_scatter"):
    rows = []
    for count in (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20):
        part, full = torch.zeros(count), torch.zeros(2 * count)
        best = 1e9
        for _ in range(30):
            dist.barrier()
            begin = time.perf_counter()
            if kind == "all_gather":
                dist.all_gather_into_tensor(full, part)
            else:
                dist.reduce_scatter_tensor(part, full)
            best = min(best, time.perf_counter() - begin)
        rows.append((count * 4, best * 1e6))
    out[kind] = rows
if rank == 0:
    print(json.dumps(out))
dist.barrier()
"""


def gloo_curves(a):
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
        ranks = [subprocess.Popen([a.python, "-c", GLOO, str(r), folder + "/store"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for r in range(2)]
        times = json.loads(ranks[0].communicate(timeout=300)[0])
        ranks[1].communicate(timeout=60)
    curves = {}
    for kind, rows in times.items():
        alpha = rows[0][1]
        slope = max((us - alpha) / (sent - rows[0][0]) for sent, us in rows[-2:])   # us a byte
        curves[kind] = (alpha, 1e-3 / slope)
    return curves


def operator_scale(a, hardware):
    """PyTorch without FSDP on one rank: us = scale x ours as predicted + gap x operators. Least squares of the relative error."""
    rows = []
    for shape in MODELS.values():
        for seq in (shape["seq"], 2 * shape["seq"]):
            s = dict(shape, seq=seq, batch=1)
            peer = Peer(a, dict(s, world=1), "single", {})
            measured = min(peer.least() for _ in range(4)) / 1e3
            peer.end()
            ours = run([a.program, "run", "--json", "--device", "virtual", "--hardware", hardware, "--model", "llama", "--set", dims(s), "--seq", str(seq),
                        "--batch", "1", "--world", "1", "--wrap", "root"])["step_ns"] / 1e3
            rows.append((ours, 110 * s["layers"] + 20, measured))   # operators of a block's forward and backward, and of the rest
    best = min(((sum((x * o + g * n) / m - 1 for o, n, m in rows) ** 2 + sum(((x * o + g * n) / m - 1) ** 2 for o, n, m in rows)), x, g)
               for x in [0.5 + 0.05 * i for i in range(80)] for g in [0.5 * i for i in range(120)])
    print("operators of PyTorch: %.2f x ours + %.1f us each; errors %s" % (best[1], best[2], [round((best[1] * o + best[2] * n) / m - 1, 2) for o, n, m in rows]), file=sys.stderr)
    return best[1], best[2]


def peer_hardware(hardware, scale, gap, curves, unit_us, name):
    out = []
    for line in hardware.splitlines():
        m = re.match(r"  (\w+): \{t0_us: ([^,]+), tflops: ([^,]+), gb_s: ([^,]+), p: ([^,]+), traffic: ([^,]+), cold_gb_s: ([^}]+)\}", line)
        if m:
            t0, tflops, gb_s, p, traffic, cold = (float(x) for x in m.groups()[1:])
            line = f"  {m[1]}: {{t0_us: {t0 * scale:.4g}, tflops: {tflops / scale:.4g}, gb_s: {gb_s / scale:.4g}, p: {p:g}, traffic: {traffic:g}, cold_gb_s: {cold / scale:.4g}}}"
        line = re.sub(r"^name: .*", f'name: "{name}"', line)
        out.append(line)
    body = "\n".join(out)
    for kind, (alpha, gb_s) in curves.items():
        body = re.sub(rf"  {kind}:\n    - .*", f"  {kind}:\n    - {{devices: 2, alpha_us: {alpha:.4g}, gb_s: {gb_s:.4g}, floor_us: 0, root_us: 0}}", body)
    body = re.sub(r"host: .*", f"host: {{launch_us: 0, collective_us: 0, unit_pass_us: {unit_us / 2:.4g}, wake_us: 0, wire_late_us: 0}}", body)
    body = re.sub(r"device: .*", f"device: {{gemm_efficiency: 1, kernel_us: {gap:.4g}, optimizer_us: 0, step_us: 0, contention: 1}}", body)
    return body + "\n"


def main():
    a = arguments()
    out = pathlib.Path(a.output)
    out.mkdir(parents=True, exist_ok=True)
    table, rows = out / "decisions_measured.csv", []
    if table.exists():
        with open(table, newline="", encoding="utf-8") as f:
            rows = [r for r in csv.DictReader(f) if r["runtime"] not in a.runtime or r["id"].split("-")[1] not in a.model]
    if not (out / "machine.yaml").exists() or "shardscope" in a.runtime:
        subprocess.run([a.program, "calibrate", "-o", str(out / "machine.yaml")], check=True, stdout=subprocess.DEVNULL)
    hardware = (out / "machine.yaml").read_text(encoding="utf-8")
    if set(a.runtime) & {"fsdp1", "fsdp2"}:
        units = {r["arm"]: r["unit_ns"] / 1e3 for r in json.loads((ROOT / "bench/results/host_overhead.json").read_text(encoding="utf-8"))["rows"]}
        scale, gap = operator_scale(a, str(out / "machine.yaml"))
        curves = gloo_curves(a)
        for impl in ("fsdp2", "fsdp1"):
            (out / f"machine_{impl}.yaml").write_text(peer_hardware(hardware, scale, gap, curves, units[impl], f"calibrated, {impl}"), encoding="utf-8")
    for model in a.model:
        shape = MODELS[model]
        for runtime in a.runtime:
            for wire in WIRES if runtime == "shardscope" else ["none"]:
                choices = OURS if runtime == "shardscope" else PEER
                arms = {text(s): Ours(a, shape, wire, s) if runtime == "shardscope" else Peer(a, shape, runtime, s) for s in [{}] + [s for _, s in choices]}
                for i, row in enumerate(pairs_of(arms, choices, a.rounds, f"{runtime}, {model}, wire {wire}")):
                    number = len([r for r in rows if r["runtime"] == runtime and r["model"] == model]) + 1
                    rows.append(dict(id=f"{runtime}-{model}-{number}", runtime=runtime, model=model, set=dims(shape), seq=shape["seq"], batch=shape["batch"],
                                     wire=wire, date=datetime.date.today().isoformat(), **row))
                with open(table, "w", newline="", encoding="utf-8") as f:
                    w = csv.DictWriter(f, COLUMNS, lineterminator="\n")
                    w.writeheader()
                    w.writerows(rows)


if __name__ == "__main__":
    main()
