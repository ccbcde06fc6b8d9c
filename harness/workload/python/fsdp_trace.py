"""What a rank's thread does in a step of PyTorch's FSDP on the CPU, as spans of shardscope (fsdp/core/span.h).

Between the begin and the end of a step the thread is always in exactly one of these:
  compute     operators of the model; of the unit and pass whose hooks ran last
  copy        inside FSDP's own hooks: packing, casts, copies, bookkeeping
  a wait      inside a collective: over Gloo PyTorch's FSDP waits where it issues one, so that nothing of it is hidden
  optimizer   after the last backward
Hooks are put around FSDP's while a step is traced, and taken away after; samples are untraced.
"""
import contextlib
import time

import torch.distributed as dist

HOST, COMPUTE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE = range(5)  # lanes
K_COMPUTE, K_OPTIMIZER, K_COPY, K_ALL_GATHER, K_REDUCE_SCATTER, K_ALL_REDUCE, K_OTHER, K_WAIT, _, K_STEP = range(10)
NONE, FORWARD, BACKWARD, OPTIMIZER = range(4)  # passes
NO_UNIT = -1

# How a collective of torch.distributed is seen: kind, lane, and its whole buffer among the arguments by position or name.
COLLECTIVES = {"all_gather_into_tensor": (K_ALL_GATHER, ALL_GATHER, (0, "output_tensor")),
               "_all_gather_base": (K_ALL_GATHER, ALL_GATHER, (0, "output_tensor")),
               "all_gather": (K_ALL_GATHER, ALL_GATHER, (0, "tensor_list")),
               "reduce_scatter_tensor": (K_REDUCE_SCATTER, REDUCE_SCATTER, (1, "input")),
               "_reduce_scatter_base": (K_REDUCE_SCATTER, REDUCE_SCATTER, (1, "input")),
               "all_reduce": (K_ALL_REDUCE, ALL_REDUCE, (0, "tensor"))}


def size_of(value):
    if isinstance(value, (list, tuple)):
        return sum(size_of(v) for v in value)
    return value.numel() * value.element_size()


class Tracer:
    """`units`: what wrap() gives; `numbers`: unit name -> number in the plan."""

    def __init__(self, wrapped, numbers):
        self.unit_of = {id(module): numbers.get(name, NO_UNIT) for name, module in wrapped.units}
        self.spans, self.step, self.next_id = [], 0, 1
        self.at, self.inside, self.in_collective = 0, [], False
        self.unit, self.pass_, self.kind = NO_UNIT, NONE, K_COMPUTE

    # ---- spans
    def add(self, lane, kind, unit, pass_, begin, end, size=0, waits=()):
        number = self.next_id
        self.next_id += 1
        self.spans.append((number, self.step, lane, kind, unit, pass_, begin, begin, end, size, list(waits)))
        return number

    def cut(self):
        """What the thread did since the last cut becomes a span."""
        now = time.monotonic_ns()
        if now > self.at:
            self.add(COMPUTE, self.kind, self.unit, self.pass_, self.at, now)
        self.at = now
        return now

    def turn(self, kind, unit, pass_):
        self.cut()
        self.kind, self.unit, self.pass_ = kind, unit, pass_

    def collective(self, kind, lane, size, call):
        self.in_collective = True
        try:
            begin = self.cut()
            out = call()
            end = time.monotonic_ns()
        finally:
            self.in_collective = False
        number = self.add(lane, kind, self.unit, self.pass_, begin, end, size)
        self.add(HOST, K_WAIT, self.unit, self.pass_, begin, end, 0, [number])
        self.at = end
        return out

    @contextlib.contextmanager
    def traced_step(self, number):
        self.step, begin = number, time.monotonic_ns()
        self.at, self.inside = begin, []
        self.unit, self.pass_, self.kind = NO_UNIT, NONE, K_COMPUTE
        yield
        end = self.cut()
        self.add(HOST, K_STEP, NO_UNIT, NONE, begin, end)

    def optimizer(self):
        self.turn(K_OPTIMIZER, NO_UNIT, OPTIMIZER)

    # ---- hooks
    def hooked(self, call, unit_of, pass_, stays):
        """FSDP's own work around a unit; after it the unit computes (`stays`), or what was before goes on."""
        def around(*args, **kwargs):
            unit, before = unit_of(*args), (self.kind, self.unit, self.pass_)
            self.turn(K_COPY, unit, pass_)
            try:
                return call(*args, **kwargs)
            finally:
                if stays == "enter":
                    self.inside.append(before)
                    self.turn(K_COMPUTE, unit, pass_)
                elif stays == "leave":
                    self.turn(*(self.inside.pop() if self.inside else (K_COMPUTE, NO_UNIT, pass_)))
                elif stays == "begin":
                    self.turn(K_COMPUTE, unit, pass_)
                else:
                    self.turn(K_COMPUTE, before[1], pass_)
        return around

    def group_unit(self, group, *_):
        return next((self.unit_of[id(m)] for m in group.modules if id(m) in self.unit_of), NO_UNIT)

    def state_unit(self, state, *_):
        return self.unit_of.get(id(state), NO_UNIT)

    def places(self):
        """-> (object, attribute, unit of the arguments, pass, what follows)"""
        from torch.distributed.fsdp import _runtime_utils, fully_sharded_data_parallel
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group

        group = getattr(_fsdp_param_group, "FSDPParamGroup", None)
        return [(group, "pre_forward", self.group_unit, FORWARD, "enter"), (group, "post_forward", self.group_unit, FORWARD, "leave"),
                (group, "pre_backward", self.group_unit, BACKWARD, "begin"), (group, "post_backward", self.group_unit, BACKWARD, "after"),
                (fully_sharded_data_parallel, "_pre_forward", self.state_unit, FORWARD, "enter"),
                (fully_sharded_data_parallel, "_post_forward", self.state_unit, FORWARD, "leave"),
                (_runtime_utils, "_pre_backward_hook", self.state_unit, BACKWARD, "begin"),
                (_runtime_utils, "_post_backward_hook", self.state_unit, BACKWARD, "after")]

    @contextlib.contextmanager
    def installed(self):
        kept = []

        def put(owner, name, value):
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        for name, (kind, lane, (position, word)) in COLLECTIVES.items():
            if hasattr(dist, name):
                put(dist, name, self.wrapped(getattr(dist, name), kind, lane, position, word))
        for owner, name, unit_of, pass_, stays in self.places():
            if owner is not None and hasattr(owner, name):
                put(owner, name, self.hooked(getattr(owner, name), unit_of, pass_, stays))
        try:
            yield self
        finally:
            for owner, name, value in reversed(kept):
                setattr(owner, name, value)

    def wrapped(self, call, kind, lane, position, word):
        def around(*args, **kwargs):
            if self.in_collective:  # one collective may be made of others
                return call(*args, **kwargs)
            buffer = kwargs[word] if word in kwargs else args[position]
            return self.collective(kind, lane, size_of(buffer), lambda: call(*args, **kwargs))
        return around
