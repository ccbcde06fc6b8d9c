#!/usr/bin/env python3
"""The virtual world itself against published step times of sources that no constant was fitted on.

  bench/published_virtual.py [--program build/bin/shardscope]

`published` fits and judges the closed form of a step; this runs the same rows as cases, `shardscope run --device virtual`, where every
operator is charged on its own. Rows of tests/data/published/step_time.csv with role `transfer`; those with selective checkpointing are
left out (the runtime has none and block).
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHECKPOINT = {"none": "none", "full": "block"}


def flags(row):
    model = {"llama3.1-8b": "llama-3-8b"}.get(row["model"], row["model"].replace("llama2", "llama-2").replace("llama3", "llama-3"))
    group = int(row["shard_group"])
    out = {"device": "virtual", "model": model, "hardware": row["gpu"], "network": row["network"], "world": row["world"], "seq": row["seq"],
           "batch": row["micro_batch"], "accumulate": row["accumulate"], "accumulate-sync": "every", "param-dtype": "bf16",
           "reduce-dtype": "bf16" if row["reduce_bytes"] == "2" else "fp32", "checkpoint": CHECKPOINT[row["checkpoint"]], "steps": "1", "warmup": "0",
           "strategy": f"hybrid_shard:{group}" if group and group < int(row["world"]) else "shard_grad_op" if row["zero2"] == "1" else "full_shard"}
    return [word for key, value in out.items() for word in ("--" + key, value)]


def predicted(program, row):
    done = subprocess.run([program, "run", "--json", *flags(row)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 2 or not done.stdout:
        sys.exit(f"published_virtual: {row['row_id']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def summary(what, errors):
    if errors:
        sizes = sorted(abs(e) for e in errors)
        print(f"{what:28} {len(errors):3} rows  median {statistics.median(sizes):6.1%}  worst {sizes[-1]:6.1%}  bias {statistics.median(errors):+6.1%}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=str(ROOT / "build" / "bin" / "shardscope"))
    program = p.parse_args().program
    with open(ROOT / "tests" / "data" / "published" / "step_time.csv", newline="", encoding="utf-8") as f:
        rows = [r for r in csv.DictReader(f) if r["role"] == "transfer" and r["checkpoint"] in CHECKPOINT]
    groups = {}
    for row in rows:
        result = predicted(program, row)
        if not result["step_ns"]:
            print(f"{row['row_id']:9} {row['model']:12} {row['gpu']:16} {result['status']}: {result['reason']}")
            continue
        seconds, measured = result["step_ns"] / 1e9, float(row["step_s"])
        error = seconds / measured - 1
        groups.setdefault((row["gpu"][:4], "compiled" if row["compile"] == "1" else "eager or not stated"), []).append(error)
        print(f"{row['row_id']:9} {row['model']:12} {row['gpu']:16} x{row['world']:4} mb {row['micro_batch']:2} checkpoint {row['checkpoint']:5}"
              f" measured {measured:8.4f} s  predicted {seconds:8.4f} s  {error:+6.1%}{'  compiled' if row['compile'] == '1' else ''}")
    for (gpu, how), errors in sorted(groups.items()):
        summary(f"{gpu}, {how}", errors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
