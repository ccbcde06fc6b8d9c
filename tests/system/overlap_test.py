"""Overlap on the host device is real: with an emulated wire and a uniform model whose compute is longer than its
communication, `block` with prefetch exposes at most 15 % of what it exposes without; `root` overlaps nothing in forward.

Both arms run in turns and the best of a few rounds is taken: other work on the machine only ever adds exposure. Where it may, the test
runs before other work; where it may not and the ranks do not get their cores, it is skipped: time that is not there cannot overlap."""
import os
import sys

from command import Checks, run_json

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
import busy_machine  # noqa: E402

MODEL = {"model": "llama", "set": "layers=12,dim=128,heads=4,kv_heads=4,ffn=352,vocab=64", "seq": 128, "batch": 4, "world": 2,
         "steps": 4, "warmup": 2, "wire": "1ms,1GB/s"}
EXPOSED = ["exposed_all_gather_forward_ns", "exposed_all_gather_backward_ns", "exposed_reduce_scatter_ns", "exposed_other_ns"]
check = Checks()


def exposed(document):
    return sum(document[k] for k in EXPOSED)


busy_machine.run_before_others()
best, plain = None, None
for _ in range(15):
    a = run_json(dict(MODEL, wrap="block"))
    b = run_json(dict(MODEL, wrap="block", forward_prefetch=0, backward_prefetch="none"))
    best = min(best, exposed(a)) if best is not None else exposed(a)
    plain = min(plain, exposed(b)) if plain is not None else exposed(b)
    if best <= 0.15 * plain:
        break
print(f"exposed per step: {best / 1e6:.2f} ms with prefetch, {plain / 1e6:.2f} ms without, ratio {best / plain:.3f}")
if best > 0.15 * plain and (share := busy_machine.share_of_a_core()) < 0.9:
    print(f"skipped: the machine is busy, a process gets {100 * share:.0f} % of a core, and this user may not run before others; run it again alone")
    sys.exit(77)
check(best <= 0.15 * plain, f"ratio {best / plain:.3f}, at most 0.15 wanted")
root = run_json(dict(MODEL, wrap="root"))
forward = [m for m in root["unit_metrics"] if m["pass"] == "forward"]
hidden = sum(m["hidden_ns"] for m in forward)
check(hidden == 0, f"root hides {hidden} ns of its forward all-gather")
check.done()
