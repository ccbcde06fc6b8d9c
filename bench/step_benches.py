"""What whole steps show: overlap against its ideal, the cost of tracing, copies of the per-parameter layout, the virtual world's speed.

Each function yields rows {name, value, low, high, unit, command}: the median over rounds with the smallest and largest (of tracing: estimate and
interval). Rounds go over all cases in turns, so that what drifts on the machine falls on all alike."""
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import time

SMALL = ["--set", "layers=4,dim=128,heads=4,kv_heads=4,ffn=352,vocab=512", "--seq", "64", "--batch", "4"]
MEDIUM = ["--set", "layers=8,dim=256,heads=8,kv_heads=8,ffn=688,vocab=1024", "--seq", "128", "--batch", "4"]
DEEP = ["--set", "layers=32,dim=256,heads=8,kv_heads=8,ffn=688,vocab=1024", "--seq", "128", "--batch", "2"]  # as many blocks as a 7B model
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


def wire_ns(wire, full_bytes, count, ranks=2):
    """Of `count` collectives of `full_bytes` in all, as fsdp/comm/wire.h: a latency each + what a rank sends of the full buffers / bandwidth."""
    latency, bandwidth = wire
    return count * latency + full_bytes * (ranks - 1) / ranks * 1e9 / bandwidth


def busy(case):
    """Nanoseconds that the compute lane and the network work in the traced step."""
    compute = sum(case[k] for k in ("compute_ns", "overlapped_ns", "optimizer_ns", "copy_ns"))
    return compute, sum(m["all_gather_ns"] + m["reduce_scatter_ns"] for m in case["unit_metrics"])


def shortest_step(case, wire):
    """Close to the shortest step of this plan's schedules: the computation of unit k can begin when units 0 to k have been gathered, and when that
    of unit m has ended the network still owes the reductions of m and of all units behind it. Collectives at the length of the wire, computation
    at its measured length. No bound to the nanosecond: the root's computation before the blocks is not told apart from that behind them, and
    none of it is taken to hide what is before or behind the blocks, so its short part there (the embedding) counts as waiting and a step can
    be shorter by as much."""
    forward, backward = ([m for m in sorted(case["unit_metrics"], key=lambda m: m["unit_index"]) if m["pass"] == p] for p in ("forward", "backward"))
    head = tail = gathered = reduced = hidden = 0
    for i, m in enumerate(forward):
        gathered += wire_ns(wire, m["all_gather_bytes"], m["all_gathers"])
        head = max(head, gathered - hidden)
        hidden += 0 if i == 0 else m["compute_ns"]
    hidden = 0
    for i, m in enumerate(backward):   # the root's reduction is the last, that of block 0 the one before
        reduced += wire_ns(wire, m["reduce_scatter_bytes"], m["reduce_scatters"])
        tail = max(tail, reduced - hidden)
        hidden += 0 if i == 0 else m["compute_ns"]
    compute, _ = busy(case)
    network = sum(wire_ns(wire, m[k + "_bytes"], m[k + "s"]) for m in case["unit_metrics"] for k in ("all_gather", "reduce_scatter"))
    return max(compute + head + tail, network + case["optimizer_ns"])


WIRES = {"20us,4GB/s": (20e3, 4e9), "100us,4GB/s": (100e3, 4e9), "100us,2GB/s": (100e3, 2e9), "200us,1GB/s": (200e3, 1e9), "200us,800MB/s": (200e3, 8e8),
         "200us,500MB/s": (200e3, 5e8)}


def overlap_rows(what, found, cases, wires):
    for name, results in found.items():
        achieved, ratios, reachable, of_bound = [], [], [], []
        for r in results:
            compute, network = busy(r)
            ideal, bound = max(compute, network), shortest_step(r, wires[name])
            achieved.append(100 * ideal / r["traced_step_ns"])
            reachable.append(100 * ideal / bound)
            of_bound.append(100 * bound / r["traced_step_ns"])
            ratios.append(network / compute)
        yield {**row(f"{what}: {name}; network / compute {statistics.median(ratios):.2f}", achieved, "% of ideal", cases[name], "high"),
               "extra": {"reachable": statistics.median(reachable), "of_reachable": statistics.median(of_bound)}}


def overlap_cases(short, arguments):
    """name -> (arguments, wire); `arguments` makes them of the model's and the wire's name"""
    chosen = ("20us,4GB/s", "200us,1GB/s") if short else WIRES
    return {f"{model}, {wire}": (arguments(model, wire), WIRES[wire]) for model in (("small",) if short else ("small", "medium", "deep")) for wire in chosen}


def overlap(program, short):
    """The ideal step is max(compute lane busy, network busy); what is achieved is that over the step that was traced. Two ranks on this machine."""
    models = {"small": SMALL, "medium": MEDIUM, "deep": DEEP}
    both = overlap_cases(short, lambda model, wire: [*models[model], "--wire", wire, "--warmup", "3", "--steps", "5" if short or model == "deep" else "10", "--repetitions", "1"])
    cases = {name: c for name, (c, _) in both.items()}
    yield from overlap_rows("overlap against ideal", in_turns(program, cases, 2 if short else 5), cases, {name: w for name, (_, w) in both.items()})


def beside(program, name):
    return str(pathlib.Path(program).with_name(name))


def own_program(program, name, arguments):
    done = subprocess.run([beside(program, name), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {shlex.join(arguments)}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def own_cores(program, short):
    """Overlap as above, of one rank without a peer, whose collectives copy its own part and last as long as the wire: no other rank's computation takes its cores."""
    shapes = {"small": "4,128,4,352,512,64,4", "medium": "8,256,8,688,1024,128,4", "deep": "32,256,8,688,1024,128,2"}
    both = overlap_cases(short, lambda model, wire: [shapes[model], str(int(WIRES[wire][0])), str(int(WIRES[wire][1])), "5" if short or model == "deep" else "15"])
    found = {name: [] for name in both}
    for _ in range(2 if short else 5):
        for name, (arguments, _) in both.items():
            found[name].append(own_program(program, "own_cores", arguments))
    commands = {name: a for name, (a, _) in both.items()}
    for r in overlap_rows("overlap, a core for the lanes", found, commands, {name: w for name, (_, w) in both.items()}):
        yield {**r, "command": shlex.join(["own_cores", *commands[r["name"].split(": ", 1)[1].split(";")[0]]])}


def located(values):
    """Hodges and Lehmann's estimate of where a symmetric distribution lies, and the interval (95 %) that inverts the signed-rank test."""
    n = len(values)
    means = sorted((x + y) / 2 for i, x in enumerate(values) for y in values[i:])
    k = max(0, math.floor(len(means) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return statistics.median(means), means[k], means[-1 - k]


def tracing(program, short):
    """Steps with recording off, on, on, off in the same processes: the logarithm of traced over untraced of each such quad, and their location."""
    for name, wrap in (("small", "block"), ("small, one unit per linear layer", "class:Linear")):
        arguments = [wrap, "10", "6" if short else "250"]
        r = own_program(program, "tracing_cost", arguments)
        for key, what in (("step_ns", "wall"), ("cpu_ns", "CPU of both ranks")):
            logs = [sum(math.log(b[key]) * (1 if on else -1) for b, on in zip(quad, r["traced"])) / 2 for quad in r["quads"]]
            value, low, high = (100 * (math.exp(v) - 1) for v in located(logs))
            yield {"name": f"cost of tracing, {what}: {name}", "value": value, "low": low, "high": high, "unit": "% of the step", "better": "low",
                   "command": shlex.join(["tracing_cost", *arguments])}
        step = statistics.median(b["step_ns"] for quad in r["quads"] for b, on in zip(quad, r["traced"]) if not on)
        direct = 100 * r["spans"] * r["span_ns"] / step
        yield {"name": f"cost of tracing, what a step's spans take: {name}; {r['spans']} of {r['span_ns']:.0f} ns", "value": direct, "low": direct, "high": direct,
               "unit": "% of the step", "better": "low", "command": shlex.join(["tracing_cost", *arguments])}


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


ALL = {"overlap": overlap, "own_cores": own_cores, "tracing": tracing, "copies": copies, "virtual": virtual}
