#!/usr/bin/env python3
"""The virtual world against the host's over the parity matrix (parity_cells.py) and how each model may be wrapped.

Equal to the byte have to be the peak of memory, the peak of each category and the peak's cause; equal one by one the
collectives of a step, and in their order the spans of each lane.

  virtual_matrix.py DRIVER                every model x strategy x checkpointing x wrap; shapes, layouts, precisions and
                                          accumulation take turns
  virtual_matrix.py DRIVER --all          every cell of the parity matrix x every wrap
--part K/N: the Kth of N parts.
"""
import argparse
import collections
import itertools
import sys

from parity_cells import AXES, SHAPES, case_of_line, cells_of_all, name_of
from parity_driver import Driver, DriverEnded

FINEST = {"gpt2": "class:Conv1D", "t5": "class:T5Attention", "embedding-classifier": "class:Conv1D"}  # finer than a sublayer, or across them


def wraps_of(cell):
    sublayer = [] if cell["model"] == "chain" else ["sublayer"]  # its blocks have no parts
    return ["block", "root", "blocks:2", *sublayer, "size:6000", FINEST.get(cell["model"], "class:Linear")]


def turns():
    """The axes that are not crossed walk through their values, at unlike lengths."""
    free = [k for k in AXES if k not in ("world", "strategy", "checkpoint")]
    for i, (model, strategy, checkpoint) in enumerate(itertools.product(SHAPES, AXES["strategy"], AXES["checkpoint"])):
        for j, wrap in enumerate(wraps_of(dict(model=model))):
            n = i * 7 + j
            cell = dict(model=model, shape=SHAPES[model][n % len(SHAPES[model])], world=4 if ":" in strategy else 2 + n % 2, strategy=strategy,
                        checkpoint=checkpoint, **{k: AXES[k][(n // (m + 1)) % len(AXES[k])] for m, k in enumerate(free)})
            yield cell, wrap


def answers(driver, cases):
    """(cell, wrap, answer), one after the other."""
    line = Driver(driver)
    try:
        for cell, wrap in cases:
            answer = line.ask(case_of_line(cell, wrap=wrap))
            if "error" in answer:
                raise DriverEnded(answer["error"])
            yield cell, wrap, answer
    except DriverEnded as e:
        sys.exit(f"virtual_matrix: {e}, at {name_of(cell)} wrap={wrap}")
    finally:
        line.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("driver")
    p.add_argument("--all", action="store_true")
    p.add_argument("--part", default="1/1", metavar="K/N")
    a = p.parse_args()
    k, n = map(int, a.part.split("/"))
    cases = [(c, wrap) for c in cells_of_all() for wrap in wraps_of(c)] if a.all else list(turns())
    cases = cases[k - 1::n]
    equal, unlike, refused, covered = 0, 0, collections.Counter(), set()
    for done, (cell, wrap, answer) in enumerate(answers(a.driver, cases), 1):
        if "refused" in answer:
            refused[answer["refused"]] += 1
        elif answer["differences"]:
            unlike += 1
            print(f"{name_of(cell)} wrap={wrap}: " + "; ".join(answer["differences"]), flush=True)
        else:
            equal += 1
            covered.add((cell["model"], cell["strategy"], cell["checkpoint"], wrap))
        if done % 1000 == 0:
            print(f"{done} of {len(cases)}", flush=True)
    for sentence, count in refused.items():
        print(f"refused by both, {count} cases: {sentence}")
    print(f"{len(cases)} cases: {equal} equal, {unlike} not, {sum(refused.values())} refused; {len(covered)} of model x strategy x checkpoint x wrap equal")
    return 1 if unlike or refused or not equal else 0


if __name__ == "__main__":
    sys.exit(main())
