#!/usr/bin/env python3
"""Pairs of settings measured on the machine of bench/results, and that machine's costs, for `published_decisions`.

  bench/decision_tables.py CALIBRATED.yaml [--program build/bin/shardscope]      CALIBRATED: what `shardscope calibrate` wrote there

Reads bench/results/predicted_against_measured.md (ours over an emulated wire), side_by_side.md (ours, ours over Gloo, FSDP2, FSDP1) and
host_overhead.json; writes decisions_measured.csv and machine*.yaml to tests/data/published. Constants come from rows that are no pair:
operators are scaled to one rank without communication (ours, and PyTorch's: a share of ours and a time for each operator), Gloo is the
difference that it makes to one unit of the whole model, a unit costs PyTorch's host what host_overhead measured.
Noise is what equal arms of two sessions differ by, over the square root of two for one and times it for a ratio: 9 % beside PyTorch, 8.5 %
at the fastest wire (of 36 cases two were 15 to 25 % slow in one run and not in the next), 3 % at slower ones.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS, DATA = ROOT / "bench" / "results", ROOT / "tests" / "data" / "published"
MODELS = {"small": ("layers=4,dim=128,heads=4,kv_heads=4,ffn=352,vocab=512", "64", "4"), "medium": ("layers=8,dim=512,heads=8,kv_heads=8,ffn=1376,vocab=4096", "256", "2")}
OPERATORS = {"small": 83 * 4 + 16, "medium": 83 * 8 + 16}    # kernels of an eager step: of the blocks, and of the rest
FULL_MB = {"small": 3.73, "medium": 118}                     # all parameters in fp32
# Of PyTorch over Gloo, each collective: what one more of 33 and of 226 units costs a step there (4.09 and 4.43 ms, another model), less what it costs
# over collectives that return at once (1.02 and 1.22 ms); a third for each of its three.
TORCH_GLOO_US = ((4092 - 1019) + (4433 - 1224)) / 2 / 3
MACHINES = {"ours": "machine.yaml", "ours, gloo": "machine_gloo.yaml", "FSDP2": "machine_fsdp2.yaml", "FSDP1": "machine_fsdp1.yaml"}
COLUMNS = ["id", "runtime", "kind", "set", "seq", "batch", "wire", "hardware", "from", "to", "ratio", "noise", "predicted", "source"]
OP = re.compile(r"  (\w+): \{t0_us: ([^,]+), tflops: ([^,]+), gb_s: ([^,]+), p: ([^,]+), traffic: ([^,]+), cold_gb_s: ([^}]+)\}")


def scaled(text, factor, name, host, device, gloo=None):
    """The file with operators that take `factor` times as long; `gloo`: latency in us, GB/s."""
    lines = []
    for line in text.splitlines():
        if m := OP.match(line):
            t0, tflops, gb_s, p, traffic, cold = (float(x) for x in m.groups()[1:])
            line = (f"  {m[1]}: {{t0_us: {t0 * factor:.4g}, tflops: {tflops / factor:.4g}, gb_s: {gb_s / factor:.4g}, p: {p:g}, traffic: {traffic:g}, "
                    f"cold_gb_s: {cold / factor:.4g}}}")
        elif m := re.match(r"    - \{devices: 2, alpha_us: ([^,]+), gb_s: ([^,}]+)", line):
            alpha, gb_s = gloo or (float(m[1]), float(m[2]))
            line = f"    - {{devices: 2, alpha_us: {alpha:.4g}, gb_s: {gb_s:.4g}}}"
        line = re.sub(r"^name: .*", f'name: "{name}"', line)
        line = re.sub(r"^source: .*", 'source: "bench/decision_tables.py: bench/results"', line)
        line = re.sub(r"^host: .*", f"host: {{launch_us: 0, collective_us: 0, {host}}}", line)
        lines.append(re.sub(r"^device: .*", f"device: {{gemm_efficiency: 1, optimizer_us: 0, {device}}}", line))
    return "\n".join(lines) + "\n"


def one_rank(program, hardware, model):
    dims, seq, batch = MODELS[model]
    done = subprocess.run([program, "run", "--json", "--device", "virtual", "--hardware", hardware, "--set", dims, "--seq", seq, "--batch", batch, "--world", "1"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["step_ns"] / 1e6


def arms():
    """(model, wrap, arm) -> ms, of the session with every wrap."""
    text = (RESULTS / "side_by_side.md").read_text(encoding="utf-8")
    rows = re.finditer(r"\| (small|medium) \| (\S+) \| ([^|]+) \| \d+ \| ([\d.]+) ms \|", text[text.index("## Every wrap"):])
    return {m.groups()[:3]: float(m[4]) for m in rows}


def machines(a, times):
    text = pathlib.Path(a.calibrated).read_text(encoding="utf-8")
    ours = {model: times[model, "block", "ours, one rank"] for model in MODELS}
    torch = {model: times[model, "block", "PyTorch, one rank"] for model in MODELS}
    factor = math.prod(ours[m] / one_rank(a.program, a.calibrated, m) for m in MODELS) ** (1 / len(MODELS))
    more = OPERATORS["medium"] / OPERATORS["small"]
    share = (torch["medium"] - more * torch["small"]) / (ours["medium"] - more * ours["small"])
    each = (torch["small"] - share * ours["small"]) / OPERATORS["small"] * 1e3
    gloo = {m: times[m, "root", "ours, gloo"] - times[m, "root", "ours"] for m in MODELS}    # ms of a gather and a reduction, each of half the bytes
    per_mb = (gloo["medium"] - gloo["small"]) / (FULL_MB["medium"] - FULL_MB["small"])
    curve = (max(20.0, (gloo["small"] - per_mb * FULL_MB["small"]) / 2 * 1e3), 1 / per_mb)
    units = {r["arm"]: r["unit_ns"] / 1e3 for r in json.loads((RESULTS / "host_overhead.json").read_text(encoding="utf-8"))["rows"]}
    print(f"operators x {factor:.2f}; PyTorch's {share:.2f} x ours + {each:.1f} us each; Gloo {curve[0]:.0f} us, {curve[1]:.2f} GB/s")
    files = {"machine.yaml": scaled(text, factor, "two cores", "wake_us: 11, wire_late_us: 50", "contention: 0"),
             "machine_gloo.yaml": scaled(text, factor, "two cores, Gloo", "wake_us: 11", "contention: 1", curve)}
    for impl in ("fsdp2", "fsdp1"):
        files[f"machine_{impl}.yaml"] = scaled(text, factor * share, f"two cores, {impl}", f"unit_pass_us: {units[impl] / 2:.0f}, wake_us: 11",
                                               f"kernel_us: {max(0, each):.3g}, contention: 1", (TORCH_GLOO_US, curve[1]))
    for name, content in files.items():
        (DATA / name).write_text(content, encoding="utf-8")


def wire_pairs():
    """Ours over an emulated wire. The calibration of that day is gone: what it predicted then stands beside each pair."""
    cases = {}
    for m in re.finditer(r"\| ([\d.]+) ms \| ([\d.]+) ms \| [^|]+ \| `([^`]+)` \|", (RESULTS / "predicted_against_measured.md").read_text(encoding="utf-8")):
        flags = m[3].split()
        d = dict(zip(flags[::2], flags[1::2]))
        cases[(d["--set"], d["--wire"], d["--batch"]), (d["--wrap"], d["--strategy"], d["--backward-prefetch"])] = (float(m[1]), float(m[2]))
    usual = ("block", "full_shard", "pre")
    for (job, choice), (ms, predicted) in cases.items():
        changed = [f"{k}={v}" for k, v, u in zip(("wrap", "strategy", "backward_prefetch"), choice, usual) if v != u]
        if len(changed) != 1 or (job, usual) not in cases:
            continue
        base, base_predicted = cases[job, usual]
        yield dict(runtime="shardscope", kind=changed[0].split("=")[0], set=job[0], seq="model", batch=job[2], wire=job[1], hardware="machine.yaml", to=changed[0],
                   ratio=ms / base, noise=0.085 if job[1].startswith("200us") else 0.03, predicted=f"{predicted / base_predicted:.4f}", source="predicted_against_measured.md")


def side_pairs(times):
    for (model, wrap, arm), ms in times.items():
        if wrap == "block":
            continue
        dims, seq, batch = MODELS[model]
        yield dict(runtime="shardscope" if arm.startswith("ours") else arm.lower(), kind="wrap", set=dims, seq=seq, batch=batch, wire="none", hardware=MACHINES[arm],
                   to="wrap=" + {"linear": "class:Linear"}.get(wrap, wrap), ratio=ms / times[model, "block", arm], noise=0.09, predicted="", source="side_by_side.md")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("calibrated")
    p.add_argument("--program", default=str(ROOT / "build" / "bin" / "shardscope"))
    a = p.parse_args()
    times = arms()
    machines(a, times)
    rows = [*wire_pairs(), *side_pairs(times)]
    with open(DATA / "decisions_measured.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        w.writeheader()
        for i, row in enumerate(rows):
            w.writerow({**row, "from": "default", "id": f"m-{i + 1:02d}", "ratio": f"{row['ratio']:.4f}"})
    print(f"{len(rows)} pairs")


if __name__ == "__main__":
    main()
