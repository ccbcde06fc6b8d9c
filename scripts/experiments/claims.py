"""The claims that the experiments stand for, each with the check that fails when it does not show. Pure functions of rows (results.py).

A check returns a Finding. SHOWS: the claim as it is written. DIFFERS: the claim as written does not hold here, and what holds instead,
which the check has tested just as hard, is said with its reason. FAIL: neither.
"""
import dataclasses

import results

SHOWS, DIFFERS, FAIL = "shows", "differs", "FAIL"
MS = 1e6


@dataclasses.dataclass
class Finding:
    verdict: str
    number: str   # the claim's own number, as measured
    text: str = ""


class NotComparable(Exception):
    """The rows lack what the check compares; the text says what."""


def case_of(cases, **axes):
    """The case with these values of these axes."""
    found = [c for c in cases if all(c.axes.get(k) == str(v) for k, v in axes.items())]
    if len(found) != 1:
        raise NotComparable(f"{len(found)} cases with {axes}, not one")
    return found[0]


def measured(cases, **axes):
    case = case_of(cases, **axes)
    if not case.fits or not case.samples or not case.steps:
        raise NotComparable(f"{case.name()} is {case.status}: {case.reason or 'no step was traced'}")
    return case


def wire_ns(case, size):
    """What the emulated wire of a case takes for an all-gather or reduce-scatter of a buffer of `size` bytes."""
    latency, bandwidth = case.settings["wire"].split(",")
    return _quantity(latency, {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}) + size * _share(case) / _quantity(
        bandwidth, {"GB/s": 1, "MB/s": 1e-3, "KB/s": 1e-6, "Gbit/s": 1 / 8})


def _share(case):
    world = int(case.settings["world"])
    return (world - 1) / world


def _quantity(text, units):
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * units[unit]
    raise NotComparable(f"'{text}' is none of {', '.join(units)}")


def ms(ns):
    return f"{ns / MS:.1f} ms"


def grown(fast, slow):
    """class -> ns more in the slower case's calmest step; compute counts whether overlapped or not. Only what grew."""
    def merged(step):
        out = {c: step[c] for c in results.CLASSES if c not in ("compute", "overlapped")}
        out["compute"] = step["compute"] + step["overlapped"]
        return out
    a, b = merged(fast.calmest()), merged(slow.calmest())
    return {c: b[c] - a[c] for c in b if b[c] > a[c]}


def largest(growth):
    """(class, its share of all that grew)."""
    if not growth:
        return "nothing", 0.0
    cause = max(growth, key=growth.get)
    return cause.replace("_", " "), growth[cause] / sum(growth.values())


# 1 ------------------------------------------------------------------------------------------------------------------------------------

WAITING = ("exposed_all_gather_forward", "exposed_all_gather_backward", "exposed_reduce_scatter", "exposed_other", "host", "copy", "memory_wait")


def too_fine(cases, least_ratio=2.0):
    """The finest wrapping against the best; what grew is waiting, not arithmetic."""
    finest = measured(cases, wrap="class:Linear,LlamaRMSNorm")
    best = min((c for c in cases if c.fits and c.samples), key=lambda c: c.step_ns)
    ratio = finest.step_ns / best.step_ns
    growth = grown(best, finest)
    waiting = sum(growth.get(c, 0) for c in WAITING) / max(1, sum(growth.values()))
    cause, share = largest(growth)
    number = f"{ratio:.1f}x"
    text = (f"{finest.axes['wrap']} ({len(finest.units)} units) {ms(finest.step_ns)} against {ms(best.step_ns)} for {best.axes['wrap']}; "
            f"{share:.0%} of what grew is {cause}")
    return Finding(SHOWS if ratio >= least_ratio and waiting >= 0.5 else FAIL, number, text)


# 2 ------------------------------------------------------------------------------------------------------------------------------------

def too_coarse(cases):
    """From the coarsest to the finest: out of memory up to a boundary, and everything beyond it fits."""
    by_units = sorted(cases, key=lambda c: len(c.units))
    fits = [c.fits for c in by_units]
    if not all(c.fits or c.status == "oom" for c in cases):
        raise NotComparable("a case ended neither measured nor out of memory: " + "; ".join(c.name() for c in cases if not c.fits and c.status != "oom"))
    first = fits.index(True) if True in fits else len(fits)
    monotone = 0 < first < len(fits) and all(fits[first:])
    named = all("ran out of memory: " in c.reason for c in by_units[:first])
    if not (monotone and named):
        return Finding(FAIL, f"{fits.count(False)} of {len(fits)} out of memory", "not from one side of a boundary, or without a cause")
    last = by_units[first - 1]
    cause = last.reason.split("ran out of memory: ", 1)[1].split(":", 1)[0]
    return Finding(SHOWS, f"{first} of {len(fits)} out of memory",
                   f"{by_units[first].axes['wrap']} fits ({by_units[first].peak_bytes / 2**20:,.0f} MiB), {last.axes['wrap']} ends at {cause}")


# 3 ------------------------------------------------------------------------------------------------------------------------------------

def per_block(cases):
    """What is exposed against what must be: gathers of the root and the first block, reductions of both at the end."""
    block = measured(cases, wrap="block")
    root_unit, blocks = block.units[0], block.units[1:]
    if len({u.unsharded_bytes for u in blocks}) != 1:
        raise NotComparable("the blocks are not alike")
    gather = [wire_ns(block, u.unsharded_bytes) for u in block.units]
    reduce = [wire_ns(block, u.reduce_bytes) for u in block.units]
    must = gather[0] + gather[1] + reduce[0] + reduce[1]
    total = gather[0] + 2 * sum(gather[1:]) + sum(reduce)   # the root is kept after its forward, blocks are gathered twice
    exposed = sum(block.least(c) for c in results.EXPOSED)
    hidden = 1 - max(0.0, exposed - must) / (total - must)
    whole = measured(cases, wrap="root")
    exposed_whole = sum(whole.least(c) for c in results.EXPOSED)
    text = (f"of {ms(total)} on the wire {ms(exposed)} are exposed, each class in the step where it is least; the first gathers and the last reductions of "
            f"{root_unit.name} and {blocks[0].name} take {ms(must)}; one unit for all exposes {ms(exposed_whole)}")
    return Finding(SHOWS if hidden >= 0.9 and exposed < exposed_whole else FAIL, f"{hidden:.0%} hidden", text)


# 4 ------------------------------------------------------------------------------------------------------------------------------------

def forward_prefetch(cases):
    """Exposed all-gather of forward without and with a unit ahead, with many units and with one."""
    cls = "exposed_all_gather_forward"
    off, on = measured(cases, wrap="block", forward_prefetch=0), measured(cases, wrap="block", forward_prefetch=1)
    must = wire_ns(on, on.units[0].unsharded_bytes) + wire_ns(on, on.units[1].unsharded_bytes)
    hidden = min(1.0, (off.least(cls) - on.least(cls)) / (off.least(cls) - must)) if off.least(cls) > must else 0.0
    one_off, one_on = measured(cases, wrap="root", forward_prefetch=0), measured(cases, wrap="root", forward_prefetch=1)
    same = abs(one_on.least(cls) / one_off.least(cls) - 1)
    text = (f"exposed in forward {ms(off.least(cls))} without, {ms(on.least(cls))} with a unit ahead ({ms(must)} cannot be hidden); with the root alone "
            f"{ms(one_off.least(cls))} and {ms(one_on.least(cls))}")
    return Finding(SHOWS if hidden >= 0.8 and same <= 0.15 else FAIL, f"{hidden:.0%} hidden", text)


# 5 ------------------------------------------------------------------------------------------------------------------------------------

def backward_prefetch(cases):
    """none queues a gather behind the reduction, post issues it before that, pre under the backward itself."""
    cls = "exposed_all_gather_backward"
    none, post, pre = (measured(cases, backward_prefetch=v) for v in ("none", "post", "pre"))
    values = [c.least(cls) for c in (none, post, pre)]
    floor = (len(none.units) - 1) * wire_ns(none, none.units[1].unsharded_bytes)
    holds = values[0] >= floor and values[1] <= 0.8 * values[0] and values[2] <= 0.5 * values[1]
    text = f"exposed all-gather in backward; peak {none.peak_bytes / 2**20:.1f}, {post.peak_bytes / 2**20:.1f}, {pre.peak_bytes / 2**20:.1f} MiB"
    return Finding(SHOWS if holds else FAIL, " / ".join(f"{v / MS:.1f}" for v in values) + " ms", "none / post / pre: " + text)


# 6 ------------------------------------------------------------------------------------------------------------------------------------

def size_based(cases, least_gain=0.2):
    """For each model the waiting with the best unit size that makes other units than a unit a block does, against that of a unit a block."""
    parts, gains = [], []
    for model in sorted({c.axes["model"] for c in cases}):
        block = measured(cases, model=model, wrap="block")
        sized = [measured(cases, **c.axes) for c in cases if c.axes["model"] == model and c.axes["wrap"].startswith("size:")]
        sized = [c for c in sized if [u.name for u in c.units] != [u.name for u in block.units]]
        if not sized:
            raise NotComparable(f"no size of {model} makes other units than a unit a block")
        best, lean = min(sized, key=waiting_ns), min(sized, key=lambda c: c.peak_bytes)
        gains.append(1 - waiting_ns(best) / waiting_ns(block))
        parts.append(f"{model}: {best.axes['wrap']} ({len(best.units)} units) waits {ms(waiting_ns(best))} a step, block ({len(block.units)}) {ms(waiting_ns(block))}; "
                     f"lowest peak {lean.peak_bytes / 2**20:.1f} MiB with {lean.axes['wrap']}, {block.peak_bytes / 2**20:.1f} with block")
    return Finding(SHOWS if min(gains) >= least_gain else FAIL, ", ".join(f"{g:.0%}" for g in gains) + " less waiting", "; ".join(parts))


def waiting_ns(case):
    """What the compute lane waits for in a step that nothing disturbs: each class where it is least."""
    return sum(case.least(c) for c in results.EXPOSED + ("memory_wait",))


# 7 ------------------------------------------------------------------------------------------------------------------------------------

def mixed_plan(cases, margin=0.05):
    """The mixed plan against all sharded and all replicated, with one and with several micro-batches: less waiting, or what does not fit."""
    def waiting(name, accumulate):
        plan = [c for c in cases if c.axes["wrap"].endswith(f"/{name}.yaml")]   # as the spec has it, or from the root of the file system
        case = case_of(plan, accumulate=accumulate)
        if case.status == "oom":
            return None
        return waiting_ns(measured(cases, **case.axes))

    def beaten(name, accumulate):
        mixed, other = waiting("table_replicated", accumulate), waiting(name, accumulate)
        return other is None or mixed < (1 - margin) * other

    def told(name, accumulate):
        ns = waiting(name, accumulate)
        return "out of memory" if ns is None else ms(ns)
    if waiting("table_replicated", 4) is None or waiting("table_replicated", 1) is None:
        return Finding(FAIL, "does not fit", "the mixed plan itself runs out of memory")
    several, one = ([beaten(n, a) for n in ("all_sharded", "all_replicated")] for a in (4, 1))
    number = f"waits {told('table_replicated', 4)}, sharded {told('all_sharded', 4)}"
    text = "; ".join(f"{a} micro-batches: mixed {told('table_replicated', a)}, sharded {told('all_sharded', a)}, replicated {told('all_replicated', a)}"
                     for a in (4, 1)) + " of waiting"
    if not all(several):
        return Finding(FAIL, number, text)
    if all(one):
        return Finding(SHOWS, number, text)
    return Finding(DIFFERS, number, text + "; gradients of a table are dense here, so that all-reducing them costs what gathering and scattering the table "
                   "costs: the mixed plan pays where the table would be gathered again for each micro-batch, and where all replicated does not fit")


# 8 ------------------------------------------------------------------------------------------------------------------------------------

def embedding_in_root(cases):
    """Sizes of the root to the parameter: table, head and the last norm by default; what is named goes to units of its own."""
    dims = dict(pair.split("=") for pair in case_of(cases, wrap="block").settings["set"].split(","))
    table, norm = int(dims["vocab"]) * int(dims["dim"]), int(dims["dim"])
    want = {"block": 2 * table + norm, "class:LlamaDecoderLayer": 2 * table + norm, "class:LlamaDecoderLayer,Embedding": table + norm,
            "class:LlamaDecoderLayer,Embedding,lm_head": norm}
    got = {wrap: case_of(cases, wrap=wrap).units[0].parameters for wrap in want}
    default, apart = measured(cases, wrap="block"), measured(cases, wrap="class:LlamaDecoderLayer,Embedding,lm_head")
    share = got["block"] / sum(u.parameters for u in default.units)
    text = (f"root {got['block']:,} parameters by default, {got['class:LlamaDecoderLayer,Embedding,lm_head']:,} with table and head apart; peak "
            f"{default.peak_bytes / 2**20:.1f} against {apart.peak_bytes / 2**20:.1f} MiB")
    return Finding(SHOWS if got == want and apart.peak_bytes < default.peak_bytes else FAIL, f"{share:.0%} of the model in the root", text)


# predicted ----------------------------------------------------------------------------------------------------------------------------

def predicted_7b(cases):
    """Claims 1 and 2 for a real model: the small batch shows what fine units cost, the large one where coarse units end."""
    batches = sorted({int(c.axes["batch"]) for c in cases})
    if len(batches) != 2:
        raise NotComparable(f"two batches are compared, not {batches}")
    small, large = ([c for c in cases if c.axes["batch"] == str(b)] for b in batches)
    fine = too_fine(small, least_ratio=1.0)
    ratio, usual = float(fine.number[:-1]), measured(small, wrap="block")
    finest = measured(small, wrap="class:Linear,LlamaRMSNorm")
    cause, share = largest(grown(usual, finest))
    coarse = too_coarse(large)
    number = f"{finest.step_ns / usual.step_ns:.2f}x; {coarse.number}"
    text = f"{ms(finest.step_ns)} against {ms(usual.step_ns)} for block, {share:.0%} of what grew is {cause}; {coarse.text}"
    hidden = hidden_share(finest.calmest())
    if coarse.verdict != SHOWS or (finest.step_ns < 1.25 * usual.step_ns and (hidden < 0.5 or finest.step_ns <= usual.step_ns)):
        return Finding(FAIL, number, text)
    if ratio >= 2:
        return Finding(SHOWS, number, text)
    return Finding(DIFFERS, number, text + f"; below 2x: with {len(finest.units)} units {hidden:.0%} of the time on the network lies under computation, and the host's "
                   "time a unit is this runtime's (bench/results/host_overhead.md has PyTorch's beside it)")


def hidden_share(step):
    """Of the time of a step with a collective in flight or waited for: the part under computation."""
    exposed = sum(step[c] for c in results.EXPOSED)
    return step["overlapped"] / (step["overlapped"] + exposed) if step["overlapped"] + exposed > 0 else 0.0
