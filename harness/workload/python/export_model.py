"""Writes a model as a .pt2 that shardscope plans, predicts and runs. Started by `shardscope export`; prints one JSON document.

The archive is that of torch.export.save. The member extra/shardscope.json adds what the graph does not say: every module with its
class, parameters that share one tensor, what the inputs are.
"""
import argparse
import json
import os
import re
import sys
import time
import traceback
import warnings

from user_model import Refused, first_line, first_loss, load_user_model

TORCH = "2.11"


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--function")
    p.add_argument("--hf")
    p.add_argument("--output", required=True)
    p.add_argument("--batch", type=int)
    p.add_argument("--seq", type=int)
    p.add_argument("--no-weights", action="store_true")
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    return p.parse_args()


def load(options):
    import torch

    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    if options.hf:
        from hugging_face import load_hugging_face
        return load_hugging_face(options.hf, options.batch, options.seq, not options.no_weights, dtype)
    made = load_user_model(options.function, options.batch, options.seq)
    return with_loss(made)


def with_loss(made):
    """The loss as part of the module's own forward, so that names and classes of modules stay the user's."""
    original, loss = made.module.forward, made.loss

    def forward(**inputs):
        output = original(**inputs)
        return loss(output, *inputs.values()) if loss is not None else first_loss(output)

    made.module.forward = with_names(forward, list(made.inputs))
    return made


def with_names(forward, names):
    """torch.export reads the names of the arguments from the function: it gets one that has them."""
    scope = {"forward": forward}
    arguments = ", ".join(names)
    exec(f"def named({arguments}):\n    return forward({', '.join(f'{n}={n}' for n in names)})", scope)
    return scope["named"]


def user_frames(error):
    """Frames of the model's code, outermost first."""
    import torch

    library = os.path.dirname(torch.__file__) + os.sep
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file.startswith((library, here, "<")):
            continue
        frames.append((frame, line))
    return frames


def place_of(error, module):
    """"module model.layers.0.mlp, modeling.py:123 (`code`)" of the innermost frame that belongs to a module."""
    import linecache

    names = {id(m): n for n, m in module.named_modules()}
    frames = user_frames(error)
    if not frames:
        return f"module {type(module).__name__}"
    path = None
    for frame, _ in frames:
        owner = frame.f_locals.get("self")
        path = names.get(id(owner), path)
    frame, line = frames[-1]
    file = frame.f_code.co_filename
    code = linecache.getline(file, line).strip()
    where = f"module {path or type(module).__name__}, "
    return where + f"{file}:{line}" + (f" (`{code[:80]}`)" if code else "")


ADVICE = (
    ("DataDependent", "the shape or the branch depends on values of a tensor: compute all cases and choose with torch.where, "
                      "or loop over a number that is known beforehand"),
    ("DynamicControlFlow", "a branch depends on values of a tensor: choose with torch.where"),
    ("vmap", "a function that is mapped cannot be saved: write the mask with broadcasting"),
    ("out of memory", "export without weights: --no-weights, or build the model on the meta device"),
)


def refusal(error, module):
    text = f"{type(error).__name__}: {first_line(error)}"
    advice = next((a for key, a in ADVICE if key.lower() in (type(error).__name__ + str(error)).lower()),
                  "write it so that torch.export traces it, or leave it out of the module's forward")
    return Refused(f"[export] {place_of(error, module)} cannot be exported: {text[:300]}; {advice}")


def trace(made):
    import torch

    module = made.module
    if made.no_weights:
        module = module.to("meta")
    # Copies: two inputs that are one tensor would become one input of the graph.
    inputs = {n: t.to("meta") if any_meta(module) else t.detach().clone() for n, t in made.inputs.items()}
    try:
        program = torch.export.export(module, (), inputs, strict=False)
        program = program.run_decompositions({})   # operators stay whole; what maps functions over masks goes
    except Exception as error:
        raise refusal(error, module) from error
    for node in program.graph.nodes:
        shorten(node.meta)
    return program


def shorten(meta):
    """Of where a node comes from the file keeps the module path and the innermost line."""
    for key in ("from_node", "torch_fn", "source_fn_stack"):
        meta.pop(key, None)
    frames = [l.strip() for l in (meta.get("stack_trace") or "").splitlines() if l.strip().startswith("File ")]
    library = os.path.dirname(sys.modules["torch"].__file__)
    frames = [f for f in frames if library not in f] or frames
    meta["stack_trace"] = readable(frames[-1]) if frames else ""


def readable(frame):
    """'File "/a/site-packages/b/c.py", line 3, in forward' -> 'b/c.py:3, in forward'."""
    found = re.match(r'File "(.*)", line (\d+)(.*)', frame)
    if not found:
        return frame
    file, line, rest = found.groups()
    _, packages, inside = file.partition("site-packages" + os.sep)
    if not packages:
        inside = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else os.path.basename(file)
    return f"{inside}:{line}{rest}"


def any_meta(module):
    return any(t.is_meta for t in list(module.parameters()) + list(module.buffers()))


def check_loss(program, made):
    outputs = [o for o in program.graph_signature.output_specs if o.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")]
    node = program.graph.output_node().args[0][-1] if outputs else None
    value = getattr(node, "meta", {}).get("val")
    what = "nothing" if value is None else f"{value.dtype} of shape {list(value.shape)}"
    if len(outputs) != 1 or value is None or value.numel() != 1 or not value.dtype.is_floating_point:
        raise Refused(f"[export] {made.source} gives {what} and not a loss; return (module, inputs, loss) with "
                      "loss(output, *inputs) -> a tensor of one element")
    return list(value.shape)


def describe_inputs(made):
    out = []
    for name, t in made.inputs.items():
        entry = {"name": name, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."), "role": getattr(made, "roles", {}).get(name, "values")}
        if t.dtype.is_floating_point or t.dtype.is_complex or t.is_meta:
            pass
        elif t.numel():
            entry["low"], entry["high"] = int(t.min()), int(t.max()) + 1
        high = getattr(made, "high", {}).get(name)
        if high is not None and not t.dtype.is_floating_point:
            entry["low"], entry["high"] = 0, int(high)
        out.append(entry)
    return out


def class_of(module):
    return type(module).__name__


def describe(made):
    """Every module and every name of a parameter, in the order of registration."""
    import torch

    modules, parameters, first = [], [], {}
    for path, module in made.module.named_modules(remove_duplicate=False):
        modules.append([path, class_of(module)])
        for name, p in module.named_parameters(recurse=False):
            full = f"{path}.{name}" if path else name
            entry = {"name": full, "shape": list(p.shape), "dtype": str(p.dtype).removeprefix("torch."), "trains": bool(p.requires_grad)}
            if id(p) in first:
                entry["same_as"] = first[id(p)]
            first.setdefault(id(p), full)
            parameters.append(entry)
    first_input = next(iter(made.inputs.values()))
    return {"format": 1, "source": made.source, "torch": torch.__version__, "batch": made.batch or (first_input.size(0) if first_input.dim() else 1),
            "seq": made.seq or 0, "weights": not made.no_weights, "modules": modules, "parameters": parameters,
            "inputs": describe_inputs(made)}


def real_buffers(module):
    """Values of buffers that were built on the meta device: what the module itself computes when it is made again, or through the
    initialisation of transformers. name -> tensor."""
    import torch

    found = {}
    for path, m in module.named_modules():
        names = [n for n, b in m.named_buffers(recurse=False) if b.is_meta]
        if not names or not hasattr(m, "config"):
            continue
        try:
            again = type(m)(m.config)
            values = dict(again.named_buffers(recurse=False))
        except Exception:
            continue
        for n in names:
            if n in values and values[n].shape == getattr(m, n).shape and not values[n].is_meta:
                found[f"{path}.{n}" if path else n] = values[n].to(getattr(m, n).dtype)
    return found


def put_buffers(program, values):
    for name, value in values.items():
        if name in program.state_dict:
            program.state_dict[name] = value
        elif name in program.constants:
            program.constants[name] = value


def export(options):
    began = time.monotonic()
    made = load(options)
    made.module.train()
    made.no_weights = options.no_weights or any_meta(made.module)
    about = describe(made)
    program = trace(made)
    check_loss(program, made)
    if made.no_weights:
        put_buffers(program, real_buffers(made.module))
    save(program, about, options.output)
    numbers = {p["name"]: p["shape"] for p in about["parameters"] if "same_as" not in p}
    total = 0
    for shape in numbers.values():
        n = 1
        for s in shape:
            n *= s
        total += n
    return {"output": options.output, "parameters": total, "modules": len(about["modules"]), "nodes": len(list(program.graph.nodes)),
            "weights": about["weights"], "torch": about["torch"], "seconds": round(time.monotonic() - began, 1)}


def save(program, about, output):
    import torch

    part = output + ".part"
    try:
        with open(part, "wb") as f:
            torch.export.save(program, f, extra_files={"shardscope.json": json.dumps(about)})
        os.replace(part, output)
    except OSError as error:
        raise Refused(f"[export] {output} cannot be written ({error.strerror}); give a path that can") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def main():
    options = parse()
    warnings.filterwarnings("ignore")
    try:
        try:
            import torch
        except ImportError as error:
            raise Refused(f"[export] {sys.executable} has no torch; install torch {TORCH} there, or set SHARDSCOPE_PYTHON to a Python that has it", 3) from error
        if not torch.__version__.startswith(TORCH + "."):
            raise Refused(f"[export] {sys.executable} has torch {torch.__version__}, and graphs are read as torch {TORCH} writes them; "
                          f"install torch {TORCH}, or set SHARDSCOPE_PYTHON to a Python that has it", 3)
        answer = export(options)
    except Refused as error:
        answer = {"error": str(error), "code": error.code}
    print("\n" + json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
