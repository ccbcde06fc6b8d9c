"""Whether a cell passes: numbers within a tolerance, collectives the same but for what differs on purpose."""
import collections
import math

from parity_cells import LEARNING_RATE, ORDER, STEPS, WEIGHT_DECAY, settings_of

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}

# Where the collectives or parameters differ from PyTorch's on purpose: name -> why. `explained` says how far each may go.
DIFFERENCES = {
    "padding": "flat: parameters and shards start on 128 bytes here (aligned messages), on 16 in FSDP1; in elements this is the same for all "
               "types of a unit",
    "fp32 replicas": "hybrid, reduce type bf16: the sums of the groups meet in fp32 here, in bf16 in FSDP2, which rounds them again",
    "unused": "a unit that no rank used is reduced as zeros here, so that ranks which differ cannot wait for each other; with a gradient of zero "
              "its parameters decay, where PyTorch leaves out parameters without a gradient",
    "twice": "per_parameter: a unit that backward needs twice is kept between its uses here; FSDP2 frees it and gathers it again",
    "root first": "per_parameter: a unit whose inputs need no gradient is reduced here when its gradients are there; FSDP2 does it at the "
                  "end of backward, behind the root",
}


def difference(mine, peer):
    """The largest relative difference of two lists of numbers."""
    return max(abs(x - y) / abs(y) for x, y in zip(mine, peer, strict=True))


def parameter_difference(names, mine, peer):
    """The largest relative difference of a module's own parameters, in the Euclidean norm."""
    squares = collections.defaultdict(lambda: [0.0, 0.0])
    for name, a, b in zip(names, mine, peer, strict=True):
        for i, t in enumerate((a - b, b)):
            squares[name.rpartition(".")[0]][i] += float(t.double().square().sum())
    return max(math.sqrt(d / size) for d, size in squares.values())


def unused_units(cell):
    return {f"layers.{i}" for i in range(settings_of(cell)["layers"]) if i not in ORDER[cell["shape"]]} if cell["shape"] == "unused" else set()


def decayed(cell, names, values):
    """PyTorch's parameters, those of unused units as AdamW leaves them when their gradient is zero."""
    unused = unused_units(cell)
    factor = (1 - LEARNING_RATE * WEIGHT_DECAY) ** STEPS
    return [v * factor if any(n.startswith(u + ".") for u in unused) else v for n, v in zip(names, values, strict=True)]


def explained(cell, answer, mine, peer):
    """The name of the difference between two collectives, "" where there is none; None where it should not be."""
    kind, size, dtype, ranks, unit = mine
    if [kind, size, dtype, ranks] == peer:
        return ""
    if [kind, ranks] != [peer[0], peer[3]]:
        return None
    if cell["layout"] == "flat" and dtype == peer[2]:
        # Before each parameter and at the end of each rank's shard, less than what is 128 bytes in the narrower type.
        places = answer["units"][unit][1] + ranks
        step = 256 if dtype == "fp32" and "bf16" in cell["precision"] else 128
        return "padding" if peer[1] <= size < peer[1] + step * places else None
    replicas = cell["strategy"].startswith("hybrid") and kind == "all_reduce"
    return "fp32 replicas" if replicas and [dtype, peer[2]] == ["fp32", "bf16"] and size == 2 * peer[1] else None


def first_unit_has_no_input_gradient(cell):
    return cell["model"] in ("mlp", "chain") or (cell["model"], cell["shape"]) == ("embedding-classifier", "frozen")


def differences_of(cell, answer, theirs):
    """The names of the differences, one for each collective that has one; or the place of the first without a reason."""
    mine, found = list(answer["collectives"]), []
    unused = unused_units(cell)
    i = j = 0
    while i < len(mine) or j < len(theirs):
        a, b = mine[i] if i < len(mine) else None, theirs[j] if j < len(theirs) else None
        why = explained(cell, answer, a, b) if a and b else None
        if why is not None:
            found.append(why)
            i, j = i + 1, j + 1
            continue
        if a and answer["units"][a[4]][0] in unused and a[0] != "all_gather":
            found.append("unused")
            i += 1
            continue
        if b and b[0] == "all_gather" and cell["shape"] == "twice":
            found.append("twice")
            j += 1
            continue
        pair = 4 if cell["strategy"].startswith("hybrid") else 2  # a unit's reduction, and the root's
        swapped = mine[i + pair // 2:i + pair] + mine[i:i + pair // 2]
        reasons = [explained(cell, answer, x, y) for x, y in zip(swapped, theirs[j:j + pair])]
        if not first_unit_has_no_input_gradient(cell) or len(reasons) < pair or None in reasons:
            return i
        found += reasons + ["root first"]
        i, j = i + pair, j + pair
    return [f for f in found if f]


def collectives_of(cell, answer, peer):
    """-> (they are the same but for what is explained, what to print)"""
    mine, theirs = answer["collectives"], peer["collectives"]
    found = differences_of(cell, answer, theirs)
    if isinstance(found, int):
        return False, f"{len(mine)} collectives, PyTorch {len(theirs)}, number {found} has no counterpart: {mine} {theirs}"
    return True, f"{len(mine)} collectives" + "".join(f", {n} differ by {w}" for w, n in collections.Counter(found).items())


def judge(cell, answer, peer):
    """-> (passed, text, {losses, norms, parameters: the largest relative difference})"""
    for side, what in (("shardscope", answer), ("PyTorch", peer)):
        if "error" in what:
            return False, f"{side}: {what['error']}", {}
    parameters, expected = ([[n, *v.shape] for n, v in zip(x["parameters"], x["values"], strict=True)] for x in (answer, peer))
    if parameters != expected:
        return False, f"the parameters are {parameters}, in PyTorch {expected}", {}
    figures = {k: difference(answer[k], peer[k]) for k in ("losses", "norms")}
    figures["parameters"] = parameter_difference(answer["parameters"], answer["values"], decayed(cell, peer["parameters"], peer["values"]))
    limit = TOLERANCE["fp32" if cell["precision"] == "fp32" else "bf16"]
    same, calls = collectives_of(cell, answer, peer)
    good = same and all(v <= limit for v in figures.values())  # false for what is not a number
    return good, ", ".join(f"{k} {v:.1e}" for k, v in figures.items()) + ", " + calls, figures
