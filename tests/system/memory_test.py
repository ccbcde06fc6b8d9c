"""Peaks that the allocator counted equal what `plan` says, to the byte, category by category; activations apart.
Over the budget is an `oom` row that names unit, pass and category."""
import itertools

from command import Checks, call, flags, run_json

MODEL = {"model": "llama", "set": "layers=4,dim=64,heads=4,kv_heads=2,ffn=176,vocab=320", "seq": 32, "batch": 2, "steps": 3, "warmup": 1}
COUNTED = ["parameters_bytes", "gradients_bytes", "optimizer_bytes", "unsharded_bytes", "reduce_bytes"]
check = Checks()


def peaks(document):
    return document["ranks"][0]["category_peaks"]


for wrap, strategy, world in itertools.product(["root", "block", "blocks:3", "sublayer", "class:Linear"],
                                                ["full_shard", "shard_grad_op", "no_shard"], [1, 2, 3]):
    if world != 2 and wrap in ("blocks:3", "sublayer"):
        continue
    case = dict(MODEL, wrap=wrap, strategy=strategy, world=world)
    measured, planned = peaks(run_json(case)), run_json({k: v for k, v in case.items() if k not in ("steps", "warmup")}, command="plan")
    predicted = planned["memory"]["category_peaks"]
    for category in COUNTED:
        check(measured[category] == predicted[category],
              f"{wrap} {strategy} W={world} {category}: counted {measured[category]}, plan says {predicted[category]}")
for setting in [{"forward_prefetch": 3, "backward_prefetch": "pre:3"}, {"forward_prefetch": 0, "backward_prefetch": "none"},
                {"backward_prefetch": "post"}, {"max_inflight": "1"}, {"max_inflight": "none", "forward_prefetch": 3},
                {"reduce_scatter_slots": 1}, {"reduce_scatter_slots": 4}, {"optimizer": "sgd"}, {"reshard_after_forward": "true"}]:
    case = dict(MODEL, **setting)
    measured = peaks(run_json(case))
    predicted = run_json({k: v for k, v in case.items() if k not in ("steps", "warmup")}, command="plan")["memory"]["category_peaks"]
    for category in COUNTED:
        check(measured[category] == predicted[category], f"{setting} {category}: counted {measured[category]}, plan says {predicted[category]}")

whole = run_json(MODEL)["peak_bytes"]
tight = run_json(dict(MODEL, memory_budget=f"{whole}B"))
check(tight["status"] == "near_oom", f"a budget that is just met: {tight['status']}")
over = run_json(dict(MODEL, memory_budget=f"{whole - 1}B"))
check(over["status"] == "oom", f"one byte over: {over['status']}")
parts = over["peak_cause"].split(", ")
check(len(parts) == 3 and parts[1] in ("forward", "backward", "optimizer"), f"unit, pass and category: {over['peak_cause']!r}")
check(call("run", *flags(dict(MODEL, memory_budget=f"{whole - 1}B"))).returncode == 1, "an oom run exits 1")
check.done()
