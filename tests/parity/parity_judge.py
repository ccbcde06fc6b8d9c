"""Whether a cell passes: numbers within a tolerance, collectives the same but for what differs on purpose."""
import collections
import functools
import math

from parity_cells import LEARNING_RATE, ORDER, STEPS, WEIGHT_DECAY, settings_of

# Of losses, norms and parameters; T5's gradients in bf16, whose steps the parameters average, differ more.
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
T5_NORM_TOLERANCE = {"fp32": 1e-5, "bf16": 4e-2}

# Where the collectives or parameters differ from PyTorch's on purpose: name -> why. `explained` says how far each may go.
DIFFERENCES = {
    "padding": "flat: parameters and shards start on 128 bytes here (aligned messages), on 16 in FSDP1; in elements this is the same for all "
               "types of a unit; FSDP1 pads what it does not shard to a multiple of the ranks too",
    "unused": "a unit that no rank used is reduced as zeros here, so that ranks which differ cannot wait for each other; with a gradient of zero "
              "its parameters decay, where PyTorch leaves out parameters without a gradient",
    "twice": "per_parameter: a unit that backward needs twice is kept between its uses here; FSDP2 frees it and gathers it again, "
             "and reduces what earlier micro-batches left apart from the rest",
    "root first": "per_parameter: a unit whose inputs need no gradient is reduced here when its gradients are there; FSDP2 does it at the "
                  "end of backward, behind the root",
}


def largest(values):
    """Not a number where one of them is not: max alone forgets it."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


def difference(mine, peer):
    """The largest relative difference of two lists of numbers; null, as JSON has it, is not a number."""
    return largest(math.nan if None in (x, y) else abs(x - y) / abs(y) for x, y in zip(mine, peer, strict=True))


def parameter_difference(names, mine, peer):
    """The largest relative difference of a module's own parameters, in the Euclidean norm."""
    squares = collections.defaultdict(lambda: [0.0, 0.0])
    for name, a, b in zip(names, mine, peer, strict=True):
        for i, t in enumerate((a - b, b)):
            squares[name.rpartition(".")[0]][i] += float(t.double().square().sum())
    return largest(math.sqrt(d / size) for d, size in squares.values())


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
        width = 2 if dtype == "bf16" else 4
        whole = width * ranks if cell["strategy"] == "no_shard" else 0
        return "padding" if peer[1] - whole < size < peer[1] + step * places else None
    return None


def first_unit_has_no_input_gradient(cell):
    return cell["model"] in ("mlp", "chain") or (cell["model"], cell["shape"]) == ("embedding-classifier", "frozen")


def again_of(cell):
    """Kinds of collectives that FSDP2 calls for a unit that backward needs twice and that are not there here."""
    if cell["shape"] != "twice" or cell["layout"] == "flat":
        return ()
    left = cell["accumulate"] == "3/last"
    return ("all_gather", "reduce_scatter", "all_reduce") if left else ("all_gather",)


def differences_of(cell, answer, theirs):
    """The names of the differences, in the pairing that has fewest; None where a collective has no counterpart."""
    mine, unused = answer["collectives"], unused_units(cell)
    halves = (1, 2) if cell["strategy"].startswith("hybrid") else (1,)  # collectives that reduce a unit: the second once a step

    again = [c[:4] for c in mine if c[0] in again_of(cell) and answer["units"][c[4]][0] == "layers.0"]

    def swapped(i, j, half):
        """The differences of two units' reductions that come the other way round, or None."""
        there = mine[i + half:i + 2 * half] + mine[i:i + half]
        whys = [explained(cell, answer, a, b) for a, b in zip(there, theirs[j:j + 2 * half])]
        return None if len(whys) < 2 * half or None in whys else [w for w in whys if w] + ["root first"]

    @functools.cache
    def pairing(i, j):
        """-> (number of differences, their names as a linked list), of what begins at these places"""
        if i == len(mine) and j == len(theirs):
            return 0, ()
        ways = []
        if i < len(mine) and j < len(theirs):
            why = explained(cell, answer, mine[i], theirs[j])
            if why is not None:
                ways.append(([why] if why else [], pairing(i + 1, j + 1)))
            for half in halves if first_unit_has_no_input_gradient(cell) else ():
                if whys := swapped(i, j, half):
                    ways.append((whys, pairing(i + 2 * half, j + 2 * half)))
        if i < len(mine) and answer["units"][mine[i][4]][0] in unused and mine[i][0] != "all_gather":
            ways.append((["unused"], pairing(i + 1, j)))
        if j < len(theirs) and theirs[j] in again:
            ways.append((["twice"], pairing(i, j + 1)))
        ways = [(len(whys) + rest[0], (whys, rest[1])) for whys, rest in ways if rest]
        return min(ways, key=lambda w: w[0]) if ways else None

    best, names = pairing(0, 0), []
    while best and best[1]:
        names += best[1][0]
        best = (0, best[1][1])
    return None if best is None else names


def collectives_of(cell, answer, peer):
    """-> (they are the same but for what is explained, what to print)"""
    mine, theirs = answer["collectives"], peer["collectives"]
    found = differences_of(cell, answer, theirs)
    # A unit that is needed twice is gathered again at most once a backward, and reduced again once a step.
    if found is None or found.count("twice") > settings_of(cell)["accumulate"] + len(again_of(cell)) // 3 * 2:
        return False, f"{len(mine)} collectives, PyTorch {len(theirs)}, not the same: {mine} {theirs}"
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
    kind = "fp32" if cell["precision"] == "fp32" else "bf16"
    same, calls = collectives_of(cell, answer, peer)
    limits = dict.fromkeys(figures, TOLERANCE[kind])
    if cell["model"] == "t5":
        limits["norms"] = T5_NORM_TOLERANCE[kind]
    good = same and all(v <= limits[k] for k, v in figures.items())  # false for what is not a number
    return good, ", ".join(f"{k} {v:.1e}" for k, v in figures.items()) + ", " + calls, figures
