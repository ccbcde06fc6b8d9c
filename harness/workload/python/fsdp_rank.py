"""One rank of a case under PyTorch's own FSDP. Not called by people: `shardscope run --runtime fsdp2` starts it.

It speaks the lines of harness/trial/messages.h over the socket it inherits: the job, then `ready`, a `repetition` for each
"repeat", and the `result` for "trace" or "finish"; "report" is answered at any time by a thread of its own. It ends when the
socket closes.

usage: fsdp_rank.py --control-fd N
"""
import argparse
import contextlib
import datetime
import gc
import json
import os
import queue
import resource
import socket
import sys
import threading
import time

TRIED = "2.11"  # the PyTorch that tests run this with
CATEGORIES = 7  # of fsdp/core/memory_meter.h; the last one is "other"
BETAS, WEIGHT_DECAY, RATE = (0.9, 0.95), 0.1, 1e-3  # of harness/workload/trainer.h


class Refused(Exception):
    """A failure with its status (harness/store/records.h)."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Link:
    """The launcher's socket."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.sending = threading.Lock()
        self.commands = queue.Queue()
        self.where = "while starting"
        self.stored, self.arrived, self.asked = {}, threading.Condition(), set()

    def job(self):
        """The first line that is one; before it a launcher's ranks hear by which interface they reach each other."""
        while True:
            line = json.loads(self.lines.readline())
            if "prepare" not in line:
                return line
            if line["prepare"]["interface"]:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", line["prepare"]["interface"])

    def awaited(self, key, patience):
        """What a rank has set under this key."""
        with self.arrived:
            new = key not in self.asked
            self.asked.add(key)
        if new:
            self.send(store=["await", key])
        with self.arrived:
            if not self.arrived.wait_for(lambda: key in self.stored, patience):
                raise Refused("comm_error", f"[collectives] nothing was heard of {key} within {patience:g} s")
            return self.stored[key]

    def send(self, **line):
        with self.sending, contextlib.suppress(OSError):
            self.socket.sendall((json.dumps(line) + "\n").encode())

    def listen(self):
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        for line in self.lines:
            words = json.loads(line)
            command = words.get("do")
            if "stored" in words:
                with self.arrived:
                    self.stored[words["stored"][0]] = bytes.fromhex(words["stored"][1])
                    self.arrived.notify_all()
            elif command == "report":
                self.send(at=[])
                self.send(event="where", where=self.where)
            elif command:
                self.commands.put(command)
        leave(0)


def leave(code):
    """Gloo's threads now and then abort an interpreter that ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def process_ns():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return int((u.ru_utime + u.ru_stime) * 1e9)


class Training:
    """The model under FSDP, and a step of it."""

    def __init__(self, job, device):
        import families
        import fsdp_settings
        import torch

        self.job, self.settings, self.device = job, job["settings"], device
        sizes = job["pytorch"]["model"]
        seed = int(self.settings["seed"])
        self.torch, self.batches = torch, [tuple(t.to(device) for t in pair) for pair in families.batches(
            sizes, seed, job["rank"], job["world"], int(self.settings["batch"]))]
        module = families.build(sizes, seed).to(device)
        if self.settings["checkpoint"] == "block":
            fsdp_settings.checkpointed(module, families.Block)
        self.wrapped = fsdp_settings.wrap(module, job, device)
        trained = [p for p in self.wrapped.module.parameters() if p.requires_grad]
        if self.settings["optimizer"] == "sgd":
            self.optimizer = torch.optim.SGD(trained, lr=RATE)
        else:
            self.optimizer = torch.optim.AdamW(trained, lr=RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)
        self.every = self.settings["accumulate_sync"] == "every"
        self.limit = None if self.settings["clip"] == "none" else float(self.settings["clip"])
        self.losses, self.squares, self.keeping = [], [], True

    def loss_of(self, inputs, targets):
        logits = self.wrapped.module(inputs)
        return self.torch.nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets) / len(self.batches)

    def step(self, on_optimizer=None, norm=False):
        total = 0.0
        for k, (inputs, targets) in enumerate(self.batches):
            last = k + 1 == len(self.batches)
            with self.wrapped.begin_micro_batch(self.every or last, last):
                loss = self.loss_of(inputs, targets)
                loss.backward()
            total += float(loss.detach())
        if on_optimizer:
            on_optimizer()
        if norm and self.keeping:
            self.squares.append(self.square_sum())
        if self.limit is not None:
            self.wrapped.clip(self.limit)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.keeping:
            self.losses.append(total)

    def square_sum(self):
        """Of this rank's part of the gradient; equal parts of other groups are counted once."""
        parts = [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in self.wrapped.module.parameters() if p.grad is not None]
        replicas = 1
        if self.job["pytorch"]["group"]:
            replicas = self.job["world"] // self.job["pytorch"]["group"]
        elif self.settings["strategy"] == "no_shard":
            replicas = self.job["world"]
        return sum(float(g.double().square().sum()) for g in parts) / replicas


def leader_store(link, patience, rank, world):
    """The store of a process group: what ranks tell each other goes through who leads them (harness/trial/run_store.h), which sets and
    awaits. Counting is asked for by the barrier of new groups alone, in which every rank takes part."""
    import torch.distributed as dist

    class LeaderStore(dist.Store):
        def set(self, key, value):
            link.send(store=["set", key, bytes(value).hex()])

        def get(self, key):
            return link.awaited(key, patience)

        def add(self, key, amount):
            if amount:
                link.send(store=["set", f"{key}/{rank}", "01"])
                self.wait([f"{key}/{r}" for r in range(world)])
            return world

        def wait(self, keys, timeout=None):
            for key in keys:
                link.awaited(key, patience if timeout is None else timeout.total_seconds())

    return LeaderStore()


class Rank:
    def __init__(self, link, job):
        import torch

        self.link, self.job, self.torch = link, job, torch
        self.device = torch.device("cpu")
        if job["settings"]["device"] == "cuda":
            if not torch.cuda.is_available():
                raise Refused("skipped", f"[device] this PyTorch ({torch.__version__}) finds no GPU; install one with CUDA, or use --device cpu")
            self.device = torch.device("cuda", max(0, job["local_rank"]) if job["local_rank"] >= 0 else job["rank"])
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        self.environment = {"runtime": f"PyTorch {torch.__version__}, {job['settings']['runtime']}", "libtorch": torch.__version__,
                            "collectives": "nccl" if self.device.type == "cuda" else "gloo", "cpu_threads": str(torch.get_num_threads())}

    def connect(self):
        import torch.distributed as dist

        if self.device.type == "cpu" and self.job["master_host"] in ("127.0.0.1", "::1"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = self.job["pytorch"]["step_timeout_s"]
        self.store = leader_store(self.link, patience, self.job["rank"], self.job["world"])  # kept: the group holds it without owning its Python half
        dist.init_process_group(self.environment["collectives"], rank=self.job["rank"], world_size=self.job["world"], store=self.store,
                                timeout=datetime.timedelta(seconds=patience))
        self.dist = dist

    def wait_for_device(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def run(self):
        self.connect()
        self.training = Training(self.job, self.device)
        gc.collect()
        gc.freeze()
        steps, repetitions, spent = int(self.job["settings"]["steps"]), 0, 0
        self.link.send(event="ready", pid=os.getpid())
        while True:
            command = self.link.commands.get()
            if command != "repeat":
                break
            if repetitions == 0:
                for i in range(int(self.job["settings"]["warmup"])):
                    self.link.where = f"in the warm-up, step {i + 1}"
                    self.training.step(norm=True)
            repetitions += 1
            self.dist.barrier()
            begin, cpu = time.monotonic_ns(), process_ns()
            for i in range(steps):
                self.link.where = f"in repetition {repetitions}, step {i + 1}"
                self.training.step()
            self.wait_for_device()
            ns, cpu = time.monotonic_ns() - begin, process_ns() - cpu
            spent += cpu
            self.link.send(event="repetition", ns=ns, cpu_ns=cpu)
            self.training.keeping = False
        self.environment["machine.cpu_ns_per_step"] = str(spent // max(1, repetitions * steps))
        self.link.send(**self.result(trace=command == "trace"))
        self.link.commands.get()  # until the launcher closes

    def result(self, trace):
        t = self.training
        numbers = {unit["name"]: i for i, unit in enumerate(self.job["pytorch"]["units"])}
        spans, lengths, calls, size, warnings = [], [], 0, 0, []
        if trace and self.device.type == "cpu":
            spans, lengths, calls, size = self.traced(numbers)
        elif trace:
            warnings.append("the step is not traced: on a GPU PyTorch's FSDP works on streams that only its profiler sees")
        if not self.torch.__version__.startswith(TRIED + "."):
            warnings.append(f"PyTorch {self.torch.__version__}: these ranks are tried with {TRIED} alone, and hooks of another version may not be seen")
        peak, cause = self.peak()
        base = spans[0][6] if spans else 0
        return dict(event="result", ns=0, rank=self.job["rank"], losses=[spelled(x) for x in t.losses],
                    gradient_square_sums=[spelled(x) for x in t.squares],
                    peak=dict(total=peak, at_peak=[0] * (CATEGORIES - 1) + [peak], unit=-1, **{"pass": 0}),
                    category_peaks=[0] * (CATEGORIES - 1) + [peak], peak_cause=cause, spans_base=base,
                    spans=[[i, step, lane, kind, unit, pass_, issued - base, begin - issued, end - begin, held] + ([waits] if waits else [])
                           for i, step, lane, kind, unit, pass_, issued, begin, end, held, waits in spans],
                    traced_step_ns=lengths, collectives_per_step=calls, communicated_bytes_per_step=size, prefetch=[0, 0, 0, 0],
                    warnings=warnings, environment=self.environment)

    def traced(self, numbers):
        import fsdp_trace

        tracer = fsdp_trace.Tracer(self.training.wrapped, numbers)
        steps = int(self.job["settings"]["steps"])
        self.dist.barrier()
        with tracer.installed():
            for i in range(steps):
                self.link.where = f"in the traced repetition, step {i + 1}"
                with tracer.traced_step(i):
                    self.training.step(on_optimizer=tracer.optimizer)
        lengths = [s[8] - s[7] for s in tracer.spans if s[3] == fsdp_trace.K_STEP]
        last = [s for s in tracer.spans if s[1] == steps - 1 and fsdp_trace.K_ALL_GATHER <= s[3] <= fsdp_trace.K_OTHER]
        return sorted(tracer.spans), lengths, len(last), sum(sent(s, self.job["world"]) for s in last)

    def peak(self):
        """-> bytes, in words what they are. On the CPU a second model is trained for two steps under the profiler."""
        if self.device.type == "cuda":
            return self.torch.cuda.max_memory_allocated(), "allocated by PyTorch's CUDA allocator"
        from torch.profiler import ProfilerActivity, profile

        self.link.where = "while memory is measured"
        self.training = None
        gc.unfreeze()
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            training = Training(self.job, self.device)
            for _ in range(2):
                training.step()
        events = recorded.profiler.kineto_results.events()
        live = peak = 0
        for _, change in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
            live += change
            peak = max(peak, live)
        return peak, "PyTorch's CPU allocator, the whole of it: Gloo's buffers and the building of the model are in it"


def spelled(x):
    """JSON has no infinities."""
    return x if x == x and abs(x) != float("inf") else "nan" if x != x else "inf" if x > 0 else "-inf"


def sent(span, world):
    """Bytes that a rank sends for a ring over the whole world."""
    return span[9] * (world - 1) // world * (2 if span[3] == 5 else 1)


def failure(error):
    """-> status and reason of what ends the rank."""
    if isinstance(error, Refused):
        return error.status, str(error)
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if isinstance(error, ImportError):
        return "skipped", f"[runtime] {sys.executable} cannot import {error.name or 'what it needs'} ({error}); set SHARDSCOPE_PYTHON to a Python with torch"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        return "oom", f"[rank] {text[:300]}"
    if "DistBackendError" in text or "Connection closed by peer" in text or "[enforce fail at" in text or "gloo" in text:
        return "comm_error", f"[collectives] {text[:300]}"
    return "crashed", text[:300]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--control-fd", type=int, required=True)
    a = p.parse_args()
    link = Link(a.control_fd)
    try:
        job = link.job()
        link.listen()  # before PyTorch is imported, which takes seconds: the launcher asks all the while
        Rank(link, job).run()
    except BaseException as e:  # noqa: BLE001 - it becomes the row's reason
        if not isinstance(e, (Refused, ImportError)):
            import traceback

            traceback.print_exc()
        status, reason = failure(e)
        link.send(at=[])
        link.send(event="failed", status=status, reason=reason, cause="", held=-1, where=link.where)
        time.sleep(0.2)  # the launcher hears it before the peers' sockets close
    leave(1)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
