"""What whole steps show: overlap against its ideal, the cost of tracing, copies of the per-parameter layout, the virtual world's speed.

Each function yields rows {name, value, low, high, unit, command}: the median over rounds with the smallest and largest. Rounds go over all
cases in turns, so that what drifts on the machine falls on all alike."""
import json
import shlex
import statistics
import subprocess
import time

SMALL = ["--set", "layers=4,dim=128,heads=4,kv_heads=4,ffn=352,vocab=512", "--seq", "64", "--batch", "4"]
MEDIUM = ["--set", "layers=8,dim=256,heads=8,kv_heads=8,ffn=688,vocab=1024", "--seq", "128", "--batch", "4"]
TIMEOUT_S = 300


def run(program, arguments):
    done = subprocess.run([program, "run", "--json", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout)


def row(name, values, unit, arguments, better):
    return {"name": name, "value": statistics.median(values), "low": min(values), "high": max(values), "unit": unit, "better": better,
            "command": shlex.join(["shardscope", "run", *arguments])}


def in_turns(program, cases, rounds):
    """{name: [result of each round]}"""
    found = {name: [] for name in cases}
    for _ in range(rounds):
        for name, arguments in cases.items():
            found[name].append(run(program, arguments))
    return found


def overlap(program, short):
    """The ideal step is max(compute lane busy, network busy); what is achieved is that over the step that was traced."""
    wires = ["20us,4GB/s", "200us,1GB/s"] if short else ["20us,4GB/s", "100us,2GB/s", "200us,1GB/s", "200us,500MB/s"]
    models = {"small": SMALL} if short else {"small": SMALL, "medium": MEDIUM}
    cases = {f"{model}, {wire}": [*arguments, "--wire", wire, "--warmup", "3", "--steps", "5" if short else "10"]
             for model, arguments in models.items() for wire in wires}
    for name, results in in_turns(program, cases, 2 if short else 7).items():
        achieved, ratios = [], []
        for r in results:
            compute = sum(r[k] for k in ("compute_ns", "overlapped_ns", "optimizer_ns", "copy_ns"))
            network = sum(m["all_gather_ns"] + m["reduce_scatter_ns"] for m in r["unit_metrics"])
            achieved.append(100 * max(compute, network) / r["traced_step_ns"])
            ratios.append(network / compute)
        yield row(f"overlap against ideal: {name}; network / compute {statistics.median(ratios):.2f}", achieved, "% of ideal", cases[name], "high")


def tracing(program, short):
    """Traced over untraced steps of the same processes, one right after the other."""
    cases = {"small": [*SMALL, "--repetitions", "3", "--steps", "10" if short else "40"], "small, one unit per linear layer": [*SMALL, "--wrap", "class:Linear", "--repetitions", "3", "--steps", "10" if short else "40"]}
    for name, results in in_turns(program, cases, 3 if short else 15).items():
        yield row(f"cost of tracing: {name}", [100 * (r["observer_ratio"] - 1) for r in results], "% of the step", cases[name], "low")


def copies(program, short):
    """Pack and unpack of the layout that gathers each parameter by itself."""
    cases = {"small": [*SMALL, "--layout", "per_parameter"], "medium": [*MEDIUM, "--layout", "per_parameter"]}
    for name, results in in_turns(program, cases, 2 if short else 7).items():
        rates = []
        for r in results:
            moved = sum(m["all_gather_bytes"] + m["reduce_scatter_bytes"] for m in r["unit_metrics"])
            rates.append(moved / max(1, r["copy_ns"]))
        yield row(f"pack and unpack: {name}", rates, "GB/s of gathered and reduced bytes", cases[name], "high")


def virtual(program, short):
    """A whole prediction: process start, model on meta tensors, two steps."""
    for layers in (8,) if short else (8, 32):
        arguments = ["--device", "virtual", "--set", f"layers={layers},dim=1024,heads=16,kv_heads=16,ffn=2816,vocab=32000", "--seq", "1024", "--world", "8"]
        seconds = []
        for _ in range(2 if short else 7):
            begin = time.monotonic()
            run(program, arguments)
            seconds.append(time.monotonic() - begin)
        yield row(f"virtual world: {layers} layers, process start to result", seconds, "s", arguments, "low")


ALL = {"overlap": overlap, "tracing": tracing, "copies": copies, "virtual": virtual}
