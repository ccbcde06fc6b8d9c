"""Runs the Python that `recommend` prints, with PyTorch and Gloo on two processes, and holds what fully_shard and
FullyShardedDataParallel made of it against the plan: names, counts, reshard flags, prefetch lists, and one step.

usage: snippet_test.py SNIPPET_DUMP_PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
import whole_torch  # noqa: E402

whole_torch.need_here()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel  # noqa: E402


class Piece(nn.Module):
    """A module of any type: calls its children in order and lets its own parameters take part."""

    def forward(self, x):
        def call(module, x):
            for child in module.children():
                x = call(child, x) if isinstance(child, nn.ModuleList) else child(x)
            return x

        x = call(self, x)
        for p in self.parameters(recurse=False):
            x = x + p.float().sum() * 1e-3
        return x


def build(modules):
    """The model of a ModuleTree: the same names, shapes and ties."""
    shared, root = {}, None
    for m in modules:
        module = nn.ModuleList() if m["type"] == "ModuleList" else Piece()
        for name, p in m["parameters"].items():
            if p["id"] not in shared:
                shared[p["id"]] = nn.Parameter(torch.full(p["shape"], 0.01))
            module.register_parameter(name, shared[p["id"]])
        if m["path"] == "":
            root = module
            continue
        parent, _, name = m["path"].rpartition(".")
        root.get_submodule(parent).add_module(name, module)
    return root


def renamed(case, old, new):
    """The case with a module as another version of transformers names it, found by what it is (case N11)."""
    text = json.dumps([case["units"], case["modules"]])
    units, modules = json.loads(text.replace(f'"{old}"', f'"{new}"'))
    return {**case, "units": units, "modules": modules, "head": new, "title": f"{case['title']}, {old} as {new}"}


def with_renamed(cases):
    for case in cases:
        yield case
        if any("embed_out" in u["names"] for u in case["units"]):
            yield renamed(case, "embed_out", "lm_head")


def model_of(case):
    model = build(case["modules"])
    if "head" in case:
        model.get_output_embeddings = lambda: model.get_submodule(case["head"])
    return model


def step(model, dtype):
    out = model(torch.ones(2, 3, dtype=dtype))
    out.float().sum().backward()


def plain(name):
    for wrapper in ("._fsdp_wrapped_module", "_fsdp_wrapped_module", "._checkpoint_wrapped_module", "_checkpoint_wrapped_module"):
        name = name.replace(wrapper, "")
    return name.strip(".")


def check_fsdp2(case):
    scope = {}
    exec(compile(case["fsdp2"], case["title"], "exec"), scope)
    model = scope["apply_policy"](model_of(case), device_type="cpu")
    names = {module: plain(name) for name, module in model.named_modules()}
    groups = {}
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            if state._fsdp_param_group is not None:
                groups[id(state)] = state
    found = sorted(sorted(names[m] for m in s._fsdp_param_group.modules) for s in groups.values())
    planned = sorted(sorted(u["names"]) for u in case["units"])
    assert found == planned, f"units {found}, planned {planned}"
    by_name = {names[s._fsdp_param_group.modules[0]]: s for s in groups.values()}
    for unit in case["units"]:
        state = by_name[unit["names"][0]]
        reshards = state._fsdp_param_group.post_forward_mesh_info is not None
        assert reshards == unit["reshards"], f"{unit['names']} reshards: {reshards}"
    inner = [u for u in case["units"] if not u["root"]]
    for i, unit in enumerate(inner):
        ahead = len(by_name[unit["names"][0]]._states_to_forward_prefetch)
        assert ahead == min(case["forward_prefetch"], len(inner) - 1 - i), f"{unit['names']} prefetches {ahead}"
    for _ in range(2):
        step(model, torch.float32)
    assert all(p.grad is not None for p in model.parameters())
    return len(found)


def check_fsdp1(case):
    scope = {}
    exec(compile(case["fsdp1"], case["title"], "exec"), scope)
    hybrid = {"device_type": "cpu"} if "hybrid" in case["title"] else {}
    model = scope["wrap_model"](model_of(case), device_id=torch.device("cpu"), **hybrid)
    found = sorted(
        plain(name) for name, m in model.named_modules()
        if isinstance(m, FullyShardedDataParallel) and m._handle is not None)
    planned = sorted(u["names"][0] for u in case["units"])
    assert found == planned, f"units {found}, planned {planned}"
    for _ in range(2):
        step(model, torch.float32)
    return len(found)


def rank_main(rank, world, port, path, failures):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    with open(path) as f:
        cases = json.load(f)
    for case in with_renamed(cases):
        for kind, check in (("fsdp2", check_fsdp2), ("fsdp1", check_fsdp1)):
            if case[kind] is None:
                continue
            try:
                units = check(case)
                if rank == 0:
                    print(f"ok    {kind}  {units:3} units  {case['title']}", flush=True)
            except Exception as e:  # every case is told
                failures.append(f"{kind}, {case['title']}: {type(e).__name__}: {e}")
                if rank == 0:
                    print(f"FAIL  {kind}  {case['title']}: {type(e).__name__}: {e}", flush=True)
            dist.barrier()
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "cases.json")
        subprocess.run([sys.argv[1], path], check=True)
        failures = mp.Manager().list()
        mp.spawn(rank_main, args=(2, free_port(), path, failures), nprocs=2)
        if failures:
            sys.exit("\n".join(sorted(set(failures))))
