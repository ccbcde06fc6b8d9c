#!/usr/bin/env python3
"""The training of shardscope against PyTorch's own FSDP, cell by cell: model x shape x strategy x layout x precision x
accumulation x checkpointing x ranks.

The layout per_parameter meets FSDP2 (fully_shard), flat meets FSDP1 (FullyShardedDataParallel), both on Gloo on the CPU
(parity_peer.py). Models (families.py), weights, data and optimizer come from the same formulas on both sides; nothing
is copied. Compared are
  - the loss and the global gradient norm of every step: relative difference,
  - the parameters of each module after the last one: |a - b| / |b| in the Euclidean norm, a weight and its bias as one (biases
    begin at zero and have no scale of their own),
both within 1e-5 in fp32 and 2e-2 in bf16 (gradient norms of T5 4e-2), and
  - the collectives of the last step one by one: kind, ranks, type and bytes of the whole buffer, in the order of issue.
DIFFERENCES lists where these differ on purpose; anything else fails the cell.
AdamW's epsilon is 1e-4. With PyTorch's default of 1e-8 an element whose gradient is nothing but rounding makes a whole step of
it, and FSDP1 and FSDP2 themselves part by 1e-3 within five steps; a gradient that is there is felt all the same.

  parity_matrix.py SHARDSCOPE DRIVER            a subset that covers every value of every axis; the losses of its llamas
                                                `shardscope run` must give too, to the last bit
  parity_matrix.py SHARDSCOPE DRIVER --all      every cell
--log FILE keeps each cell's result; the same command goes on where it was ended, with what the same programs have passed.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import io
import json
import math
import multiprocessing
import os
import pathlib
import queue
import random
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "harness/workload/python"), str(HERE.parent / "testing")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # of the fork server
from parity_cells import AXES, BASE, EPSILON, SEED, STEPS, SUBSET, case_of, case_of_line, cells_of_all, name_of, reason_to_skip, settings_of  # noqa: E402
from parity_driver import Driver, DriverEnded  # noqa: E402
from parity_judge import DIFFERENCES, TOLERANCE, judge  # noqa: E402
import whole_torch  # noqa: E402


# ---- shardscope ------------------------------------------------------------------------------------------------------
class Ours:
    """The driver, one cell after the other."""

    def __init__(self, program):
        self.driver = Driver(program)

    def ask(self, cell, epsilon=EPSILON):
        """-> its answer, with its parameters as tensors in the order of the model."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                answer = self.driver.ask(dict(case_of_line(cell), save=folder + "/state", epsilon=epsilon))
            except DriverEnded as e:
                return dict(error=str(e))
            if "error" not in answer:
                values = saved(folder + "/state")
                answer["values"] = [values[name] for name in answer["parameters"]]
        return answer

    def close(self):
        self.driver.close()


def saved(directory):
    """The parameters of a saved state (fsdp/module/README.md)."""
    import torch
    whole = {}
    for path in pathlib.Path(directory).glob("*.safetensors"):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        for key, entry in header.items():
            name, _, kind = key.rpartition("/")
            if kind != "value":
                continue
            part = json.loads(header["__metadata__"][name])
            first, last = entry["data_offsets"]
            flat = whole.setdefault(name, torch.full(part["shape"], math.nan)).view(-1)
            if last > first:
                flat[part["begin"]:part["end"]] = torch.frombuffer(bytearray(data[begin + first:begin + last]), dtype=torch.float32)
    return whole


def command_agrees(program, cell, answer):
    """Whether `shardscope run`, ranks as processes, gives what the driver gave. None, or what is different."""
    flags = [text for k, v in case_of(cell).items() for text in ("--" + k.replace("_", "-"), v)]
    run = subprocess.run([program, "run", "--json", "--repetitions", "1", *flags], capture_output=True, text=True, timeout=300)
    try:
        out = json.loads(run.stdout)
    except json.JSONDecodeError:
        return f"shardscope gave no result: {run.stderr.strip()[:300]}"
    if out["status"] not in ("ok", "near_oom"):
        return f"shardscope: {out['status']}, {out.get('reason')}"
    if out["losses"][:STEPS] != answer["losses"]:
        return "shardscope run gives other losses than its ranks as threads"
    calls = out["collectives"] - (1 if cell["shape"] == "clipped" else 0)
    return None if calls == len(answer["collectives"]) else f"shardscope run counts {calls} collectives"


# ---- PyTorch ---------------------------------------------------------------------------------------------------------
class Theirs:
    """A world of PyTorch's ranks, forked from a process that has imported it; a new one after an error, and after some cells: a cell's
    groups of ranks keep their threads."""
    CELLS = 12
    CONTEXT = multiprocessing.get_context("forkserver")
    CONTEXT.set_forkserver_preload(["parity_peer"])

    def __init__(self):
        self.world, self.ranks, self.folder, self.cells = 0, [], None, 0

    def start(self, world):
        import parity_peer
        self.close()
        self.world, self.folder = world, tempfile.TemporaryDirectory()
        for rank in range(world):
            mine, other = self.CONTEXT.Pipe()
            process = self.CONTEXT.Process(target=parity_peer.run_rank, args=(rank, world, self.folder.name + "/store", other), daemon=True)
            process.start()
            other.close()
            self.ranks.append((process, mine))

    def ask(self, cell):
        if self.world != cell["world"] or self.cells == self.CELLS:
            self.start(cell["world"])
        try:
            self.send(cell)
        except OSError:  # a rank has died since the last cell
            self.start(cell["world"])
            self.send(cell)

    def send(self, cell):
        self.cells += 1
        for _, connection in self.ranks:
            connection.send((cell, settings_of(cell)))

    def answer(self):
        import torch
        try:
            answers = []
            for _, connection in self.ranks:
                if not connection.poll(300):
                    raise EOFError
                answers.append(connection.recv())
        except (EOFError, ConnectionResetError):
            answers = [dict(error="the ranks ended, or gave no answer in time")]
        errors = [a["error"] for a in answers if "error" in a]
        if errors:
            self.close()
            return dict(error=errors[0])
        return dict(answers[0], values=torch.load(io.BytesIO(answers[0]["values"])))

    def close(self):
        for process, connection in self.ranks:
            connection.close()
            process.kill()
            process.join()
        if self.folder:
            self.folder.cleanup()
        self.world, self.ranks, self.folder, self.cells = 0, [], None, 0


# ---- the run ---------------------------------------------------------------------------------------------------------
class Matrix:
    """Results of cells, printed and logged as they come."""

    def __init__(self, a):
        self.a, self.rows, self.lock = a, [], threading.Lock()
        programs = [a.driver, a.program, pathlib.Path(a.program).with_name("shardscope-rank")]
        sources = [*map(pathlib.Path, programs), *(HERE.parents[1] / "harness/workload/python" / name for name in ("counter_numbers.py", "families.py")), *sorted(HERE.glob("parity_*.py"))]
        self.programs = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:12]
        self.log = open(a.log, "a+", encoding="utf-8") if a.log else None
        if self.log:
            self.log.seek(0)
            rows = [json.loads(line) for line in self.log]
            self.known = {r["cell"]: r for r in rows if r["programs"] == self.programs and r["verdict"] == "passed"}
        else:
            self.known = {}

    def add(self, cell, verdict, text, figures):
        row = dict(cell=name_of(cell), verdict=verdict, text=text, figures=figures, programs=self.programs)
        with self.lock:
            self.rows.append(dict(row, of=cell))
            if verdict != "skipped" or self.a.reasons:
                print(f"{verdict:7}  {row['cell']}: {text}", flush=True)
            if self.log and verdict != "skipped" and row["cell"] not in self.known:
                self.log.write(json.dumps(row) + "\n")
                self.log.flush()

    def compare(self, cells):
        """One thread's work: cells of the queue, worlds in order."""
        ours, theirs = Ours(self.a.driver), Theirs()
        try:
            while True:
                cell = cells.get_nowait()
                theirs.ask(cell)
                answer = ours.ask(cell)
                good, text, figures = judge(cell, answer, theirs.answer())
                if good and not self.a.all and cell["model"] == "llama":
                    other = command_agrees(self.a.program, cell, ours.ask(cell, epsilon=1e-8))
                    good, text = other is None, other or text
                self.add(cell, "passed" if good else "FAILED", text, figures)
        except queue.Empty:
            return
        finally:
            ours.close()
            theirs.close()

    def run(self, cells):
        waiting = queue.SimpleQueue()
        for cell in cells:
            reason, known = reason_to_skip(cell), self.known.get(name_of(cell))
            if reason:
                self.add(cell, "skipped", reason, {})
            elif known:
                self.add(cell, known["verdict"], known["text"], known["figures"])
            else:
                waiting.put(cell)
        with concurrent.futures.ThreadPoolExecutor(self.a.jobs) as pool:
            for done in [pool.submit(self.compare, waiting) for _ in range(self.a.jobs)]:
                done.result()

    def summary(self):
        verdicts = collections.Counter(r["verdict"] for r in self.rows)
        lines = [", ".join(f"{verdicts[v]} cells {v}" for v in ("passed", "FAILED", "skipped"))]
        for kind in TOLERANCE:
            rows = [r for r in self.rows if r["figures"] and (r["of"]["precision"] == "fp32") == (kind == "fp32")]
            tops = [max(rows, key=lambda r: r["figures"][k]) for k in ("losses", "norms", "parameters") if rows]
            lines += [f"{kind}, largest difference of {k}: {r['figures'][k]:.1e} in {r['cell']}"
                      for k, r in zip(("losses", "norms", "parameters"), tops)]
        return lines

    def table(self):
        """Passed cells of each model and shape by layout and strategy; what failed in brackets."""
        columns = [f"{layout} {strategy}" for layout in AXES["layout"] for strategy in AXES["strategy"]]
        counts = collections.Counter((f"{r['of']['model']} {r['of']['shape']}", f"{r['of']['layout']} {r['of']['strategy']}", r["verdict"])
                                     for r in self.rows)
        columns = [c for c in columns if any(k[1] == c and k[2] != "skipped" for k in counts)]
        lines = [" " * 30 + " | ".join(columns)]
        for row in dict.fromkeys(k[0] for k in counts):
            cells = [(counts[row, c, "passed"], counts[row, c, "FAILED"]) for c in columns]
            lines.append(f"{row:30}" + " | ".join(f"{good}{f' ({bad})' if bad else ''}".rjust(len(c)) for (good, bad), c in zip(cells, columns)))
        return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program")
    p.add_argument("driver")
    p.add_argument("--all", action="store_true")
    p.add_argument("--only", nargs="+", default=[], metavar="AXIS=VALUE", help="of the cells those with these values")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cells at a time")
    p.add_argument("--log", help="file that keeps results")
    p.add_argument("--reasons", action="store_true", help="print a line for each skipped cell too")
    a = p.parse_args()
    whole_torch.need_here()
    cells = cells_of_all() if a.all else [{**BASE, **change} for change in SUBSET]
    cells = [c for c in cells if all(f"{k}={c[k]}" in a.only or not any(o.startswith(k + "=") for o in a.only) for k in c)]
    random.Random(SEED).shuffle(cells)  # what is ended early has seen something of everything
    cells.sort(key=lambda c: c["world"])
    matrix = Matrix(a)
    matrix.run(cells)
    for line in matrix.table() + matrix.summary() + [f"on purpose, {name}: {why}" for name, why in DIFFERENCES.items()]:
        print(line)
    return 1 if any(r["verdict"] == "FAILED" for r in matrix.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
