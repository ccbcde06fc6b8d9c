#!/usr/bin/env python3
"""Memory of the virtual world against published runs: the largest micro-batch that fits, and what sharding and resharding are worth.

  bench/published_memory.py [--program build/bin/shardscope]

Rows of tests/data/published/memory.csv. A boundary is the largest micro-batch that fits, between a row that ran and one that ran out of
memory; right means to within one micro-batch. A difference is the peak of one row less the other's: what the sources' own allocators and
models add cancels there. `ends` is a row that ran out of memory with no smaller micro-batch beside it: the largest that fits is below it, to within
one. Selective checkpointing has no counterpart here; where it ran out of memory, none at all has to.
"""
import argparse
import csv
import itertools
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
GIB = 2**30


def run(program, row, batch):
    words = ["--device", "virtual", "--model", row["model"], "--hardware", row["gpu"], "--world", row["world"], "--seq", row["seq"], "--checkpoint",
             row["checkpoint"], "--reshard-after-forward", row["reshard"], "--batch", str(batch), "--param-dtype", "bf16", "--steps", "1", "--warmup", "0"]
    if row["set"]:
        words += ["--set", row["set"]]
    done = subprocess.run([program, "run", "--json", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"published_memory: {row['row_id']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def fits(program, row, batch):
    return run(program, row, batch)["status"] in ("ok", "near_oom")


def largest(program, row, start):
    """The largest micro-batch that fits, searched upwards or downwards from `start`."""
    if fits(program, row, start):
        return next(b for b in itertools.count(start) if not fits(program, row, b + 1))
    return next((b for b in range(start - 1, 0, -1) if fits(program, row, b)), 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=str(ROOT / "build" / "bin" / "shardscope"))
    program = p.parse_args().program
    with open(ROOT / "tests" / "data" / "published" / "memory.csv", newline="", encoding="utf-8") as f:
        groups = {kind: list(rows) for kind, rows in itertools.groupby(csv.DictReader(f), key=lambda r: r["kind"])}
    wrong = 0
    for kind, rows in groups.items():
        what, _, name = kind.partition(":")
        ids = ", ".join(r["row_id"] for r in rows)
        if what == "boundary":
            measured = max(int(r["batch"]) for r in rows if r["status"] == "ok")
            found = largest(program, rows[0], measured)
            right = abs(found - measured) <= 1
            print(f"largest micro-batch, {name:22} measured {measured:6}      predicted {found:6}      {'right to within one' if right else 'WRONG'}   ({ids})")
        elif what == "ends":
            batch = int(rows[0]["batch"])
            found = largest(program, rows[0], batch - 1)
            right = found <= batch
            verdict = "does not fit either" if found < batch else "right to within one" if right else "WRONG"
            print(f"largest micro-batch, {name:22} measured below {batch}       predicted {found:6}      {verdict}   ({ids})")
        elif what == "difference":
            measured = float(rows[0]["peak_gib"]) - float(rows[1]["peak_gib"])
            peaks = [run(program, r, r["batch"])["peak_bytes"] / GIB for r in rows]
            found = peaks[0] - peaks[1]
            right = abs(found - measured) <= max(0.25, 0.1 * abs(measured))
            print(f"peak, {name:37} measured {measured:+6.2f} GiB  predicted {found:+6.2f} GiB  {'right to 10 %' if right else 'WRONG'}   ({ids})")
        else:
            right = fits(program, rows[0], rows[0]["batch"])
            print(f"fits, {rows[0]['model']:37} measured {'yes':>6}      predicted {'yes' if right else 'no':>6}      {'right' if right else 'WRONG'}   ({ids})")
        wrong += not right
    print(f"{len(groups) - wrong} of {len(groups)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
