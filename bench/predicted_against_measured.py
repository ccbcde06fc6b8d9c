#!/usr/bin/env python3
"""Steps predicted for this machine beside steps measured on it: unlike cases, all with an emulated wire.

  shardscope calibrate -o machine.yaml
  bench/predicted_against_measured.py --shardscope build/bin/shardscope --hardware machine.yaml [--cases N] [--repetitions N]

Prints every case, then the median and the worst error. Measured: the fastest of the repeated steps, since other
programs only add to a step. Peak memory must be equal to the byte. Measure on an idle machine."""
import argparse
import itertools
import json
import statistics
import subprocess
import sys

MODELS = ["layers=4,dim=128,heads=4,ffn=352,vocab=512", "layers=8,dim=128,heads=4,ffn=352,vocab=512",
          "layers=4,dim=256,heads=8,ffn=688,vocab=1024"]
WIRES = ["200us,2GB/s", "1ms,500MB/s", "50us,200MB/s"]
WRAPS = [("block", "full_shard", "pre"), ("blocks:2", "full_shard", "none"), ("sublayer", "full_shard", "pre"),
         ("root", "full_shard", "pre"), ("block", "shard_grad_op", "pre")]


def cases():
    for wire, (wrap, strategy, prefetch), (i, dims) in itertools.product(WIRES, WRAPS, enumerate(MODELS)):
        yield ["--set", dims, "--wire", wire, "--wrap", wrap, "--strategy", strategy, "--backward-prefetch", prefetch,
               "--batch", str(1 + i % 2)]


def run(program, arguments):
    done = subprocess.run([program, "run", "--json", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardscope", default="build/bin/shardscope")
    parser.add_argument("--hardware", required=True)
    parser.add_argument("--cases", type=int, default=36)
    parser.add_argument("--repetitions", type=int, default=100)
    arguments = parser.parse_args()
    every = list(cases())
    chosen = every[:: max(1, len(every) // arguments.cases)][: arguments.cases]
    errors, unequal = [], 0
    for case in chosen:
        measured = run(arguments.shardscope, case + ["--repetitions", str(arguments.repetitions), "--steps", "1"])
        predicted = run(arguments.shardscope, case + ["--device", "virtual", "--hardware", arguments.hardware])
        step = min(measured.get("samples_ns") or [measured["step_ns"]])
        error = predicted["step_ns"] / step - 1
        errors.append(abs(error))
        same = predicted["peak_bytes"] == measured["peak_bytes"]
        unequal += not same
        print(f"measured {step / 1e6:9.3f} ms  predicted {predicted['step_ns'] / 1e6:9.3f} ms  {100 * error:+6.1f} %  "
              f"peak {'equal' if same else 'UNEQUAL'}  {' '.join(case)}", flush=True)
    print(f"{len(errors)} cases: median {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %; "
          f"{unequal} unequal peaks")


if __name__ == "__main__":
    main()
