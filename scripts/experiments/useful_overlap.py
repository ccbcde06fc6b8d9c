#!/usr/bin/env python3
"""Overlap that is worth something: the time hidden under computation, less what the computation took longer for it.

  slowdown  computation of a step beside communication, less that of the control with one rank (the same layers and batch)
  useful    overlapped time less the slowdown; below zero, one after the other would have been as fast

Both from the traced steps in DIR/results.csv. On the CPU the control also has caches and memory to itself, which two ranks
share: the slowdown is an upper bound of what communication costs, and useful overlap a lower one.

usage: useful_overlap.py DIR [--json]
"""
import argparse
import csv
import json
import os
import sys


def useful_overlap(rows):
    """One record for each case with more than one rank whose control is there."""
    kept = [r for r in rows if r["traced_step_ns"]]
    axes = list(rows[0])[3:list(rows[0]).index("units")] if rows else []
    others = [a for a in axes if a != "world"]
    compute = lambda r: int(r["compute_ns"]) + int(r["overlapped_ns"])
    control = {tuple(r[a] for a in others): r for r in kept if r["world"] == "1"}
    out = []
    for r in kept:
        alone = control.get(tuple(r[a] for a in others))
        if r["world"] == "1" or alone is None:
            continue
        overlapped, slowdown = int(r["overlapped_ns"]), compute(r) - compute(alone)
        out.append({**{a: r[a] for a in axes}, "overlapped_ns": overlapped, "control_compute_ns": compute(alone),
                    "slowdown_ns": slowdown, "useful_overlap_ns": overlapped - max(0, slowdown)})
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("directory")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    path = os.path.join(a.directory, "results.csv")
    try:
        with open(path, newline="") as f:
            found = useful_overlap(list(csv.DictReader(f)))
    except (OSError, KeyError, ValueError) as e:
        sys.exit(f"[{path}] {e}; give the directory of a sweep with the axis world: [1, 2]")
    if not found:
        sys.exit(f"[{path}] no case has a control with one rank; sweep with the axis world: [1, 2]")
    if a.json:
        return print(json.dumps(found))
    for r in found:
        name = ", ".join(f"{k}={v}" for k, v in r.items() if not k.endswith("_ns"))
        print(f"{name}: {r['overlapped_ns'] / 1e6:.2f} ms hidden, {r['slowdown_ns'] / 1e6:+.2f} ms on "
              f"{r['control_compute_ns'] / 1e6:.2f} ms of computation, {r['useful_overlap_ns'] / 1e6:.2f} ms useful")


if __name__ == "__main__":
    main()
