"""How often does `compare` call equal programs different, and how often does it find a planted slowdown?

Runs one case against itself in interleaved rounds (two cases that differ only in step_timeout, which changes nothing
that is measured), then draws comparisons from the real pairs: each takes --pairs of them at random, writes them as the
samples of a results.db and asks `shardscope compare` for its verdict, with its own defaults. The slowdown is planted by
multiplying the samples of one arm; the noise is that of the machine. A round takes about two seconds on two cores.

A directory that holds the rounds already is not measured again.

usage: aa_compare.py SHARDSCOPE -o DIR [--rounds 200] [--pairs 80] [--comparisons 200] [--slowdown 3]
"""
import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess

SPEC = """name: aa
base: {{model: llama, set: {{layers: 4, dim: 128}}, seq: 128, batch: 2, steps: 2, warmup: 2}}
axes: {{step_timeout: [60s, 61s]}}
interleave: true
repeat: {{min: {rounds}, max: {rounds}, time: 3600s}}
trace: none
"""


def measure(a):
    os.makedirs(a.output, exist_ok=True)
    spec = os.path.join(a.output, "aa.yaml")
    with open(spec, "w") as f:
        f.write(SPEC.format(rounds=a.rounds))
    results = os.path.join(a.output, "results")
    subprocess.run([a.shardscope, "sweep", spec, "-o", results], check=True, stdout=subprocess.DEVNULL)
    with sqlite3.connect(os.path.join(results, "results.db")) as db:
        arms = [[ns for ns, in db.execute("SELECT ns FROM samples WHERE case_index = ? ORDER BY position", (i,))]
                for i, in db.execute("SELECT case_index FROM cases ORDER BY case_index").fetchall()]
    return results, arms


def verdict(a, results, x, y):
    with sqlite3.connect(os.path.join(results, "results.db")) as db:
        cases = [i for i, in db.execute("SELECT case_index FROM cases ORDER BY case_index")]
        for case, samples in zip(cases, (x, y)):
            db.execute("DELETE FROM samples WHERE case_index = ?", (case,))
            db.executemany("INSERT INTO samples (case_index, position, ns) VALUES (?, ?, ?)",
                           [(case, i, int(ns)) for i, ns in enumerate(samples)])
    out = subprocess.run([a.shardscope, "compare", results + ":step_timeout=60s", results + ":step_timeout=61s", "--json"],
                         capture_output=True, text=True)
    case = json.loads(out.stdout)["cases"][0]
    assert case["interleaved"], "the arms are not compared pair by pair"
    return case["verdict"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shardscope")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--rounds", type=int, default=200)
    p.add_argument("--pairs", type=int, default=80)
    p.add_argument("--comparisons", type=int, default=200)
    p.add_argument("--slowdown", type=float, default=3, help="percent")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    results, arms = measure(a)
    drawn = random.Random(a.seed)
    scratch = os.path.join(a.output, "scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(results, scratch)
    different = found = 0
    for _ in range(a.comparisons):
        rounds = drawn.sample(range(len(arms[0])), a.pairs)
        turn = [drawn.random() < 0.5 for _ in rounds]  # which arm a sample stands for makes no difference
        x = [arms[t][i] for i, t in zip(rounds, turn)]
        y = [arms[1 - t][i] for i, t in zip(rounds, turn)]
        different += verdict(a, scratch, x, y) in ("slower", "faster")
        found += verdict(a, scratch, x, [ns * (1 + a.slowdown / 100) for ns in y]) == "slower"
    ratios = sorted(b / x for x, b in zip(*arms))
    spread = statistics.median(abs(r - statistics.median(ratios)) for r in ratios) * 1.4826
    load = os.getloadavg()
    print(f"{len(arms[0])} interleaved rounds (load now {load[0]:.1f}, mean of 15 minutes {load[2]:.1f}), step {statistics.median(arms[0]) / 1e6:.2f} ms, "
          f"robust sigma of a pair's ratio {100 * spread:.2f} %, median ratio {statistics.median(ratios):.4f}")
    print(f"A/A: {different} of {a.comparisons} called different ({100 * different / a.comparisons:.1f} %, at most 5 % wanted)")
    print(f"+{a.slowdown:g} %: {found} of {a.comparisons} found slower ({100 * found / a.comparisons:.1f} %, at least 90 % wanted), "
          f"{a.pairs} pairs each")


if __name__ == "__main__":
    main()
