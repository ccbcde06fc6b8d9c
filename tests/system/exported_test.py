"""Models that torch.export wrote, through real processes: losses are PyTorch's, and the Llama is our own Llama."""
import json
import pathlib
import tempfile
import zipfile

from command import DATA, Checks, call, run_json

check = Checks()
FOLDER = pathlib.Path(DATA) / "exported"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
STEPS = {"world": 2, "batch": 2, "warmup": 1, "steps": 4}


def close(a, b, tolerance=1e-6):
    return len(a) == len(b) and all(abs(x - y) <= tolerance * abs(y) for x, y in zip(a, b))


def settings(name, **more):
    return {"model": str(FOLDER / f"{name}.pt2"), **STEPS, **more}


def losses_are_those_of_pytorch():
    wraps = {"mixed": ["block", "class:Block,BatchNorm1d,score", "root"], "resnet": ["block", "class:Conv2d"], "reached": ["class:outer"]}
    ways = [{}, {"strategy": "shard_grad_op", "forward_prefetch": 0, "backward_prefetch": "none"}, {"strategy": "no_shard"},
            {"layout": "per_parameter", "backward_prefetch": "post"}]
    for name, choices in wraps.items():
        for i, wrap in enumerate(choices):
            got = run_json(settings(name, wrap=wrap, **ways[i % len(ways)]))
            check(got["status"] == "ok" and close(got["losses"], EXPECTED[name]["losses"]),
                  f"{name}, {wrap}: {got['status']} {got.get('reason')} {got.get('losses')} for {EXPECTED[name]['losses']}")


def the_llama_is_our_own():
    own = {"model": "llama", "set": "layers=2,dim=32,heads=4,kv_heads=2,ffn=88,vocab=96,norm_eps=1e-06", "seq": 16, **STEPS}
    for more in ({}, {"wrap": "sublayer", "checkpoint": "block"}):
        a, b = run_json({**own, **more}), run_json(settings("llama", **more))
        check(close(b["losses"], a["losses"], 2e-6), f"losses of the graph {b['losses']}, of our own family {a['losses']}")
        for column in ("units", "collectives", "communicated_bytes", "largest_unit_bytes"):
            check(a[column] == b[column], f"{column}: {b[column]} for {a[column]}, {more}")


def dropout_has_a_seed():
    one, again = run_json(settings("dropping")), run_json(settings("dropping"))
    other = run_json(settings("dropping", seed=1))
    check(one["losses"] == again["losses"], "the same seed, other numbers")
    check(one["losses"] != other["losses"], "another seed, the same numbers")


def the_virtual_world_predicts():
    for name in ("llama", "mixed", "resnet", "dropping"):
        real, predicted = run_json(settings(name)), run_json(settings(name, device="virtual"))
        check(predicted["status"] == "ok", f"{name}: {predicted['status']} {predicted.get('reason')}")
        if name == "resnet":   # the host's convolutions take scratch of oneDNN, which is not predicted
            continue
        ratio = predicted["peak_bytes"] / real["peak_bytes"]
        check(0.97 < ratio < 1.03, f"{name}: peak predicted {predicted['peak_bytes']}, real {real['peak_bytes']}")


def a_case_is_named_without_its_place():
    ids = {}
    for place, name in (("here", None), ("there", "reached.pt2"), ("renamed", "other.pt2")):
        path = FOLDER / "reached.pt2" if name is None else pathlib.Path(tempfile.mkdtemp()) / name
        if name is not None:
            path.write_bytes((FOLDER / "reached.pt2").read_bytes())
        ids[place] = json.loads(call("plan", "--model", str(path), "--batch", "2", "--wrap", "root", "--json").stdout)["case"]
    check(ids["here"] == ids["there"], f"the same file in another folder is another case: {ids}")
    check(ids["here"] != ids["renamed"], f"two names of a file are one case: {ids}")
    changed = json.loads(call("plan", "--model", damaged(lambda t: t + " "), "--batch", "2", "--wrap", "root", "--json").stdout)["case"]
    check(changed.split("-")[-1] != ids["here"].split("-")[-1], f"another content is the same case: {changed}")


def damaged(change):
    """The smallest file with another models/model.json."""
    path = pathlib.Path(tempfile.mkdtemp()) / "changed.pt2"
    with zipfile.ZipFile(FOLDER / "reached.pt2") as source, zipfile.ZipFile(path, "w") as to:
        for i in source.infolist():
            data = source.read(i)
            if i.filename.endswith("models/model.json"):
                data = change(data.decode()).encode()
            to.writestr(i, data)
    return str(path)


def what_cannot_run_is_said():
    unknown = call("run", "--model", damaged(lambda t: t.replace("torch.ops.aten.mean.", "torch.ops.aten.meen.")), "--batch", "2", "--wrap", "root")
    check("there is no operator aten::meen in this LibTorch" in unknown.stderr + unknown.stdout and unknown.returncode in (1, 2),
          f"unknown operator: {unknown.returncode} {unknown.stderr}")
    for arguments, text in ((["--model", str(FOLDER / "llama.pt2"), "--batch", "3"], "is not the batch of 2"),
                            (["--model", str(FOLDER / "absent.pt2")], "cannot be read"),
                            (["--model", __file__ + ".pt2"], "cannot be read")):
        done = call("run", *arguments)
        check(done.returncode == 2 and text in done.stderr and done.stderr.count("\n") == 1, f"{arguments}: {done.returncode} {done.stderr}")


losses_are_those_of_pytorch()
the_llama_is_our_own()
dropout_has_a_seed()
the_virtual_world_predicts()
a_case_is_named_without_its_place()
what_cannot_run_is_said()
check.done()
