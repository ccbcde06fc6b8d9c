"""A user's model from FILE.py:FUNCTION: module, example inputs, loss. What exports it and what trains it elsewhere share this.

FUNCTION takes nothing, or any of the arguments `batch` and `seq`, and returns one of

  module, inputs            the module returns the loss: a tensor of one element, the first one of a tuple, or `.loss`
  module, inputs, loss      loss(output, *inputs) returns it

`inputs` is a tensor, a tuple of tensors, or a dictionary of them by the names of the module's arguments.
"""
import importlib.util
import inspect
import os
import sys
import traceback


class Refused(Exception):
    """What a user can act on: what, where, what would be right. `code` is the exit code: 2 bad input, 3 absent here."""

    def __init__(self, text, code=2):
        super().__init__(text)
        self.code = code


class Model:
    """`module(*positional, **by_name)` and the loss of what it returns; `names` says what each input is called."""

    def __init__(self, module, inputs, loss=None, batch=None, seq=None, source=""):
        self.module, self.loss, self.batch, self.seq, self.source = module, loss, batch, seq, source
        self.inputs = dict(inputs)

    def loss_of(self, output, inputs):
        if self.loss is not None:
            return self.loss(output, *inputs)
        return first_loss(output)


def first_loss(output):
    import torch

    if isinstance(output, torch.Tensor):
        return output
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None and isinstance(output, (tuple, list)) and output:
        loss = output[0]
    return loss


def split_target(target):
    file, colon, function = target.rpartition(":")
    if not colon or not file.endswith(".py") or not function:
        raise Refused(f"[export] {target} is not FILE.py:FUNCTION; name a Python file and a function in it, as model.py:make")
    return file, function


def load_file(file):
    if not os.path.isfile(file):
        raise Refused(f"[export] there is no file {file}; give the path of the Python file that makes your model")
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(f"[export] {place_in(error, file)}: {type(error).__name__}: {first_line(error)}; mend the file") from error
    return module


def first_line(error):
    return (str(error).strip().splitlines() or ["no message"])[0]


def place_in(error, file):
    """FILE:LINE of the last frame in `file`."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{file}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == os.path.abspath(file)]
    return f"{file}:{frames[-1].lineno}" if frames else file


def argument_names(module, count):
    """Of the module's forward, for inputs that were given by position."""
    names = []
    for p in inspect.signature(module.forward).parameters.values():
        if p.kind == p.VAR_POSITIONAL:
            names += [f"{p.name}_{i}" for i in range(count - len(names))]
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
    return names[:count] + [f"input_{i}" for i in range(len(names), count)]


def inputs_by_name(module, inputs, where):
    import torch

    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if isinstance(inputs, (tuple, list)):
        inputs = dict(zip(argument_names(module, len(inputs)), inputs))
    if not isinstance(inputs, dict) or not inputs or not all(isinstance(t, torch.Tensor) for t in inputs.values()):
        raise Refused(f"[export] the inputs of {where} are not tensors; return a tensor, a tuple of tensors, or a dictionary of them")
    return inputs


def load_user_model(target, batch=None, seq=None):
    """-> Model. Raises Refused."""
    import torch

    file, function = split_target(target)
    loaded = load_file(file)
    make = getattr(loaded, function, None)
    if not callable(make):
        names = [n for n, v in vars(loaded).items() if inspect.isfunction(v) and v.__module__ == loaded.__name__]
        raise Refused(f"[export] {file} has no function {function}; it has: {', '.join(names) or 'none'}")
    takes = inspect.signature(make).parameters
    given = {k: v for k, v in (("batch", batch), ("seq", seq)) if v is not None}
    for key in given:
        if key not in takes:
            raise Refused(f"[export] {target} takes no argument '{key}'; leave --{key} out, or write def {function}({key})")
    try:
        made = make(**given)
    except Exception as error:
        raise Refused(f"[export] {place_in(error, file)}: {type(error).__name__}: {first_line(error)}; mend the function") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
        raise Refused(f"[export] {target} does not return (module, inputs) or (module, inputs, loss); the module is a torch.nn.Module")
    module, loss = made[0], made[2] if len(made) == 3 else None
    if loss is not None and not callable(loss):
        raise Refused(f"[export] the loss of {target} is not a function; return loss(output, *inputs) -> a tensor of one element")
    default = {k: p.default for k, p in takes.items() if isinstance(p.default, int)}
    return Model(module, inputs_by_name(module, made[1], target), loss, batch or default.get("batch"), seq or default.get("seq"), target)
