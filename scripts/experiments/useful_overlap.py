#!/usr/bin/env python3
"""Overlap that is worth something: the time hidden under computation, less what the computation took longer for it.

  slowdown  computation of a step beside communication, less that of the control with one rank (the same layers and batch)
  useful    overlapped time less the slowdown; below zero, one after the other would have been as fast

Medians over the traced steps of all ranks in DIR/results.db. On the CPU the control also has caches and memory to itself, which
two ranks share: the slowdown is an upper bound of what communication costs, and useful overlap a lower one. Where the control
is the slower one, other programs have disturbed it, and the line says so.

usage: useful_overlap.py DIR [--json]
"""
import argparse
import json
import os
import sqlite3
import statistics
import sys


def cases(db):
    """(axes, overlapped ns, computation ns) of each case that was traced."""
    out = []
    for index, in db.execute("SELECT case_index FROM cases ORDER BY case_index").fetchall():
        axes = dict(db.execute("SELECT name, value FROM axes WHERE case_index = ? ORDER BY position", (index,)))
        steps = db.execute("SELECT overlapped_ns, compute_ns + overlapped_ns FROM steps WHERE case_index = ?", (index,)).fetchall()
        if steps:
            out.append((axes, *(round(statistics.median(column)) for column in zip(*steps))))
    return out


def useful_overlap(found):
    """One record for each case with more than one rank whose control is there."""
    others = lambda axes: tuple((k, v) for k, v in axes.items() if k != "world")
    controls = {others(axes): compute for axes, _, compute in found if axes.get("world") == "1"}
    return [{**axes, "overlapped_ns": overlapped, "control_compute_ns": controls[others(axes)],
             "slowdown_ns": compute - controls[others(axes)],
             "useful_overlap_ns": overlapped - max(0, compute - controls[others(axes)])}
            for axes, overlapped, compute in found if axes.get("world") != "1" and others(axes) in controls]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("directory")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    path = os.path.join(a.directory, "results.db")
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            found = useful_overlap(cases(db))
    except sqlite3.Error as e:
        sys.exit(f"[{path}] {e}; give the directory of a sweep with the axis world: [1, 2]")
    if not found:
        sys.exit(f"[{path}] no case has a control with one rank; sweep with the axis world: [1, 2]")
    if a.json:
        return print(json.dumps(found))
    for r in found:
        name = ", ".join(f"{k}={v}" for k, v in r.items() if not k.endswith("_ns"))
        disturbed = "; the control was disturbed" if r["slowdown_ns"] < 0 else ""
        print(f"{name}: {r['overlapped_ns'] / 1e6:.2f} ms hidden, {r['slowdown_ns'] / 1e6:+.2f} ms on "
              f"{r['control_compute_ns'] / 1e6:.2f} ms of computation, {r['useful_overlap_ns'] / 1e6:.2f} ms useful{disturbed}")


if __name__ == "__main__":
    main()
