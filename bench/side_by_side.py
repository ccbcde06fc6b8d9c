#!/usr/bin/env python3
"""shardscope's runtime beside PyTorch's FSDP2 and FSDP1: the same small model, CPU ranks, one thread each.

  scripts/dependencies --full         # the whole PyTorch; the programs alone need less
  bench/side_by_side.py [--rounds 7] [--wrap block linear] [-o bench/results/side_by_side]

Arms run one after the other in rounds, so that the ratio of two arms of one round saw the same machine. Printed and written
(Markdown and JSON): the median over rounds of each arm's step time, the median over rounds of its ratio to ours, and how far
losses differ. `ours, gloo` puts both programs on the same collectives; `ours` uses shared memory, its default in one machine.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = dict(layers=4, dim=128, heads=4, ffn=352, vocab=512)
SEQ, BATCH, WORLD, SEED = 64, 4, 2, 1234
WRAPS = {"block": "block", "linear": "class:Linear"}   # peer's name -> ours


def arguments():
    cache = os.environ.get("SHARDSCOPE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shardscope")
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=20, help="timed steps of one run")
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--wrap", nargs="+", choices=list(WRAPS), default=list(WRAPS))
    p.add_argument("--program", default=str(ROOT / "build/bin/shardscope"))
    p.add_argument("--python", default=os.environ.get("SHARDSCOPE_PYTHON", os.path.join(cache, "torch-2.11.0/bin/python")), help="with PyTorch")
    p.add_argument("-o", "--output", default=str(ROOT / "bench/results/side_by_side"), help="path without ending")
    return p.parse_args()


def commands(a, wrap):
    """arm -> argument list; the first arm is the one that ratios refer to."""
    dims = ",".join(f"{k}={v}" for k, v in SHAPE.items()) + f",kv_heads={SHAPE['heads']}"
    ours = [a.program, "run", "--model", "llama", "--set", dims, "--seq", str(SEQ), "--batch", str(BATCH), "--world", str(WORLD), "--seed", str(SEED),
            "--wrap", WRAPS[wrap], "--steps", str(a.steps), "--warmup", str(a.warmup), "--json"]
    peer = [a.python, str(ROOT / "bench/peer_fsdp.py"), "--wrap", wrap, "--steps", str(a.steps), "--warmup", str(a.warmup), "--seed", str(SEED)]
    peer += [text for k, v in dict(SHAPE, seq=SEQ, batch=BATCH, world=WORLD).items() for text in (f"--{k}", str(v))]
    return {"ours": ours, "ours, gloo": ours + ["--collectives", "gloo"], "FSDP2": peer + ["--impl", "fsdp2"], "FSDP1": peer + ["--impl", "fsdp1"]}


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"side_by_side: exit {done.returncode} of: {' '.join(command)}\n{done.stderr[-2000:]}{done.stdout[-500:]}")
    result = json.loads(done.stdout)
    result["step_ns"] = int(result["step_ns"])
    return result


def largest_difference(left, right):
    """Of two lists of losses, relative; over the steps that both have."""
    return max(abs(x - y) / abs(y) for x, y in zip(left, right))


def measure(a, wrap):
    arms = commands(a, wrap)
    rounds = []
    for number in range(a.rounds):
        rounds.append({arm: run(command) for arm, command in arms.items()})
        print(f"{wrap}, round {number + 1} of {a.rounds}: " + ", ".join(f"{arm} {r['step_ns'] / 1e6:.1f} ms" for arm, r in rounds[-1].items()),
              file=sys.stderr, flush=True)
    rows = []
    for arm, command in arms.items():
        steps = [r[arm]["step_ns"] for r in rounds]
        ratios = [r[arm]["step_ns"] / r["ours"]["step_ns"] for r in rounds]
        rows.append(dict(wrap=wrap, arm=arm, units=rounds[0][arm]["units"], step_ns=int(statistics.median(steps)), step_ns_of_rounds=steps,
                         ratio_to_ours=statistics.median(ratios), ratio_low=min(ratios), ratio_high=max(ratios),
                         loss_difference=max(largest_difference(r[arm]["losses"], r["FSDP2"]["losses"]) for r in rounds), command=command))
    return rows


def first(text, key):
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(key)), "unknown")


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if os.path.exists("/proc/cpuinfo") else ""
    return dict(cpu=first(cpuinfo, "model name"), cores=os.cpu_count(), kernel=platform.release(), load_before=os.getloadavg()[0])


def revision():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def markdown(report):
    m = report["machine"]
    lines = ["# Beside PyTorch's FSDP", "",
             f"{report['date']}, {m['cpu']}, {m['cores']} cores, load {m['load_before']:.2f} before; revision {report['revision']}, PyTorch {report['torch']}.",
             f"Llama of {SHAPE['layers']} layers, dim {SHAPE['dim']}, {SHAPE['heads']} heads, ffn {SHAPE['ffn']}, vocabulary {SHAPE['vocab']}; sequence {SEQ}, batch {BATCH} a rank, "
             f"{WORLD} ranks, one thread each, fp32, AdamW.",
             f"Median of {report['rounds']} interleaved rounds of {report['steps']} steps after {report['warmup']}. Command: `{report['command']}`", "",
             "| wrap | runtime | units | step | ratio to ours (min to max over rounds) | largest relative difference of losses to FSDP2 |",
             "|---|---|---|---|---|---|"]
    for r in report["rows"]:
        lines.append(f"| {r['wrap']} | {r['arm']} | {r['units']} | {r['step_ns'] / 1e6:.1f} ms | {r['ratio_to_ours']:.2f} ({r['ratio_low']:.2f} to {r['ratio_high']:.2f}) "
                     f"| {r['loss_difference']:.1e} |")
    return "\n".join(lines) + "\n"


def main():
    a = arguments()
    for needed in (a.program, a.python):
        if not os.access(needed, os.X_OK):
            sys.exit(f"side_by_side: no {needed}; run scripts/quickstart, and scripts/dependencies --full")
    load = machine()
    if load["load_before"] > 0.3 * load["cores"]:
        print(f"side_by_side: load {load['load_before']:.2f} on {load['cores']} cores: the numbers will be disturbed", file=sys.stderr)
    rows = [row for wrap in a.wrap for row in measure(a, wrap)]
    version = subprocess.run([a.python, "-c", "from importlib.metadata import version; print(version('torch'))"], capture_output=True, text=True, check=True).stdout.strip()
    report = dict(date=datetime.date.today().isoformat(), machine=load, revision=revision(), torch=version, rounds=a.rounds, steps=a.steps, warmup=a.warmup,
                  command="bench/side_by_side.py " + " ".join(sys.argv[1:]), rows=rows)
    for row in rows:
        row["command"] = [part.replace(str(ROOT) + os.sep, "").replace(a.python, "python") for part in row["command"]]
    text = markdown(report)
    output = pathlib.Path(a.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
