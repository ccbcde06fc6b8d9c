#!/usr/bin/env python3
"""make_trace.py: a profiler trace of any size whose partition is known in closed form.

  make_trace.py -o big.json.gz --cells 60000 [--shape dense] [--steps 6] [--shift-ns 250] [--seed 1]

Writes the trace, gzip if the name ends in .gz, and NAME.expected.json beside it. One rank, one device, Kineto's form.
Two shapes; with i the cell's number, all in microseconds from the cell's begin:

mixed (17 events and 1000 us a cell), a = i mod 4, b = i mod 6: every kind of class and gap
  compute, stream 7         [0, 300 + 10a)   [500, 800 + 10a)
  all-gather, stream 20     [200, 450 + 20b)
  copy, stream 24           [850 + 10a, 900 + 10a)
Launch calls: the second compute is launched at 480 + 10a, the copy at 700, the rest 100 before they begin. So a cell is
  compute      (200) + (300 + 10a)        - the part of the second compute under the all-gather
  overlapped   100 + 10a + max(0, 20b - 50) [the first and the second compute under the all-gather]
  exposed      [300 + 10a, min(450 + 20b, 500))
  copy         50
  gaps         before the second compute, if the all-gather ended before it; before the copy 50; before the next cell

dense (25 events and 400 us a cell), q = i mod 5, r = i mod 7: many short kernels, as much overlap as possible
  compute, stream 7         [60j, 60j + 50 + q) for j = 0..3
  all-gather or reduce-scatter (every other cell), stream 20     [30, 180 + 10r)
All are launched about 300 ahead, so every gap is a dependency. With c = 180 + 10r a cell is
  compute      4 (50 + q) - overlapped
  overlapped   (20 + q) + 2 (50 + q) + min(50 + q, 10r)
  exposed      150 + 10r - overlapped
  gaps         the rest: before the next cell, and between kernels 2 and 3 what c does not reach
Over 35 cells 5420 of 6300 us of communication are hidden: 86.03 %.

Every time stamp is moved by --shift-ns and has three decimals; events come in a shuffled order inside blocks of cells.
"""
import argparse
import gzip
import json
import random

BASE_US = 1_795_000_000_000_000
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long)"
REDUCE = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)"
GEMM, ATTENTION = "gemm_bf16_128x128", "void attention_kernel<float, 64>(float const*, float*)"


class Mixed:
    period = 1000

    @staticmethod
    def operations(i):
        """Name, stream, begin, end, launch begin, category of each operation, in us from the cell's begin."""
        a, b = i % 4, i % 6
        return [
            (GEMM, 7, 0, 300 + 10 * a, -100, "kernel"),
            (GATHER, 20, 200, 450 + 20 * b, 100, "kernel"),
            (ATTENTION, 7, 500, 800 + 10 * a, 480 + 10 * a, "kernel"),
            ("Memcpy DtoD (Device -> Device)", 24, 850 + 10 * a, 900 + 10 * a, 700, "gpu_memcpy"),
        ]

    @staticmethod
    def end(i):
        return 900 + 10 * (i % 4)

    @staticmethod
    def add(i, last, e):
        """Adds the cell to the expected sums."""
        a, b = i % 4, i % 6
        gather_end = 450 + 20 * b
        under_second = max(0, gather_end - 500)
        e["communication"] += gather_end - 200
        e["overlapped"] += 100 + 10 * a + under_second
        e["compute"] += 200 + 300 + 10 * a - under_second
        e["exposed_other"] += min(gather_end, 500) - (300 + 10 * a)
        e["copy"] += 50
        gap = 500 - gather_end                       # ends with a compute launched at 480 + 10a
        if gap > 0:
            launched = 480 + 10 * a
            if launched > gather_end:
                e["host_not_issued"] += min(launched, 500) - gather_end
                e["host_launch"] += 500 - min(launched, 500)
            else:
                e["idle_dependency"] += gap
        e["idle_dependency"] += 50                   # before the copy, launched long ago
        if not last:                                 # before the next cell, whose compute is launched at its begin - 100
            idle, launched = 1000 - (900 + 10 * a), 1000 - 100
            if launched > 900 + 10 * a:
                e["host_not_issued"] += launched - (900 + 10 * a)
                e["host_launch"] += 100
            else:
                e["idle_dependency"] += idle


class Dense:
    period = 400

    @staticmethod
    def operations(i):
        q, r = i % 5, i % 7
        computes = [(ATTENTION if j == 2 else GEMM, 7, 60 * j, 60 * j + 50 + q, 12 * j - 300, "kernel") for j in range(4)]
        return computes + [(REDUCE if i % 2 else GATHER, 20, 30, 180 + 10 * r, -252, "kernel")]

    @staticmethod
    def end(i):
        return max(230 + i % 5, 180 + 10 * (i % 7))

    @staticmethod
    def add(i, last, e):
        q, r = i % 5, i % 7
        overlapped = (20 + q) + 2 * (50 + q) + min(50 + q, 10 * r)
        e["communication"] += 150 + 10 * r
        e["overlapped"] += overlapped
        e["compute"] += 4 * (50 + q) - overlapped
        e["exposed_other"] += 150 + 10 * r - overlapped
        busy = 150 + 10 * r + 4 * (50 + q) - overlapped
        e["idle_dependency"] += (Dense.end(i) if last else Dense.period) - busy


def expected(shape, cells):
    """Sums over the cells, in us."""
    e = dict(compute=0, overlapped=0, exposed_other=0, copy=0, host_not_issued=0, host_launch=0, idle_dependency=0,
             communication=0)
    for i in range(cells):
        shape.add(i, i + 1 == cells, e)
    e["span"] = (cells - 1) * shape.period + shape.end(cells - 1)
    return e


def lines_of_cell(shape, i, z, correlation, at):
    """The events of a cell that begins at z, as text; each operation with its launch call, its operator and its arrow."""
    lines = []
    operations = shape.operations(i)
    for name, stream, begin, end, launch, category in operations:
        correlation += 1
        c = correlation
        lines.append(f'  {{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 77, "tid": 77, "ts": {at(z + launch - 4)}, '
                     f'"dur": 9.000, "args": {{"External id": {c}, "Sequence number": {c}, "Fwd thread id": 0}}}}')
        lines.append(f'  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 77, "tid": 77, "ts": {at(z + launch)}, '
                     f'"dur": 4.000, "args": {{"External id": {c}, "cbid": 211, "correlation": {c}}}}}')
        lines.append(f'  {{"ph": "s", "id": {c}, "pid": 77, "tid": 77, "ts": {at(z + launch)}, "cat": "ac2g", "name": "ac2g"}}')
        lines.append(f'  {{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {at(z + begin)}, "dur": {end - begin}.000, '
                     f'"args": {{"External id": {c}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {c}, '
                     f'"registers per thread": 128, "shared memory": 49152, "blocks per SM": 2.37037, "warps per SM": 18.962963, "grid": [256, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 30}}}}')
        if shape is Dense or category == "gpu_memcpy":
            lines.append(f'  {{"ph": "f", "id": {c}, "pid": 0, "tid": {stream}, "ts": {at(z + begin)}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}')
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--cells", type=int, default=1000, help="each has 17 events, or 25 if dense")
    p.add_argument("--shape", choices=("mixed", "dense"), default="mixed")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--shift-ns", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    shape = Dense if a.shape == "dense" else Mixed
    rng = random.Random(a.seed)
    events, size = 0, 0
    shift = f"{a.shift_ns % 1000:03d}"
    moved = BASE_US + a.shift_ns // 1000

    def at(us):
        return f"{moved + us}.{shift}"

    with (gzip.open(a.out, "wt", compresslevel=3) if a.out.endswith(".gz") else open(a.out, "w")) as f:
        def put(text):
            nonlocal size
            size += len(text)
            f.write(text)

        put('{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n'
            '  "traceEvents": [\n')
        per = -(-a.cells // a.steps)
        for s in range(a.steps):
            lo, hi = s * per, min(a.cells, (s + 1) * per)
            if lo >= hi:
                continue
            begin = lo * shape.period + min(launch for _, _, _, _, launch, _ in shape.operations(lo))
            put(("" if events == 0 else ",\n") +
                f'  {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{s + 1}", "pid": 77, "tid": 77, '
                f'"ts": {at(begin)}, "dur": {(hi - lo) * shape.period}.000, "args": {{"External id": {s}}}}}')
            events += 1
        correlation = 0
        for block in range(0, a.cells, 64):
            lines = []
            for i in range(block, min(block + 64, a.cells)):
                lines += lines_of_cell(shape, i, i * shape.period, correlation, at)
                correlation += len(shape.operations(i))
            rng.shuffle(lines)
            events += len(lines)
            put(",\n" + ",\n".join(lines))
        put('\n  ],\n  "traceName": "made"\n}\n')
    e = expected(shape, a.cells)
    e["events"], e["json_bytes"] = events, size
    with open(a.out + ".expected.json", "w") as f:
        json.dump(e, f)


if __name__ == "__main__":
    main()
