#!/usr/bin/env python3
"""trace_speed.py: how fast `shardscope analyze` reads, beside HolisticTraceAnalysis and the floor of decompressing alone.

  trace_speed.py build/bin/shardscope [--cells 63000] [--repeat 3] [--hta PYTHON] [--large 375000] [--out FILE.md]

Makes one trace (make_trace.py, dense) plain and as gzip, and reads both in interleaved rounds, each run in a fresh process:
analyze, HolisticTraceAnalysis if a python that has it is named (load, overlap, breakdown; as installed), gunzip alone.
--large makes a second trace of so many cells and reads it, to see whether memory grows. Prints a table: CPU seconds (user
and system), wall seconds, peak memory, each the least of the rounds; --out writes it as a page with machine and versions.
"""
import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

HTA = """
import logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
a = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2], include_last_profiler_step=True)
print(a.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0])
a.get_temporal_breakdown(visualize=False)
"""
GUNZIP = "import gzip, sys\nf = gzip.open(sys.argv[1], 'rb')\nwhile f.read(1 << 20): pass\n"


class Run:
    """One process: CPU seconds, wall seconds, peak MB, what it printed."""

    def __init__(self, command):
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            sys.exit(f"{' '.join(command)[:200]} ended with {status}")
        self.wall = time.monotonic() - began
        self.cpu = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss * 1024 / 1e6


class Arm:
    def __init__(self, name, command, megabytes):
        self.name, self.command, self.megabytes, self.runs = name, command, megabytes, []

    def run(self):
        self.runs.append(Run(self.command))

    def least(self, what):
        return min(getattr(r, what) for r in self.runs)

    def row(self):
        speed = f"{self.megabytes / self.least('cpu'):.0f}" if self.megabytes else ""
        return f"| {self.name} | {self.least('cpu'):.2f} | {self.least('wall'):.2f} | {speed} | {max(r.peak for r in self.runs):.0f} |"


def make(where, name, cells, log):
    path = os.path.join(where, name)
    subprocess.check_call([sys.executable, os.path.join(HERE, "make_trace.py"), "-o", path, "--cells", str(cells), "--shape", "dense"])
    expected = json.load(open(path + ".expected.json"))
    log(f"{name}: {expected['events']} events, {expected['json_bytes'] / 1e6:.0f} MB of JSON")
    return path, expected


def overlap_of(shardscope, path):
    return json.loads(Run([shardscope, "analyze", path, "--json"]).text)["rows"][0]["overlap_pct"]


def versions(python):
    code = ("import importlib.metadata as m, platform\n"
            "print(', '.join(f'{p} {m.version(p)}' for p in ('HolisticTraceAnalysis', 'pandas', 'numpy')), 'on Python', platform.python_version())")
    return Run([python, "-c", code]).text.strip()


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("shardscope")
    p.add_argument("--cells", type=int, default=63000, help="25 events each")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--hta", help="a python that has HolisticTraceAnalysis")
    p.add_argument("--large", type=int, default=0, help="cells of a second trace")
    p.add_argument("--keep", help="leave the traces in this directory")
    p.add_argument("--out", help="write a page of the results there")
    a = p.parse_args()
    lines = []

    def log(text=""):
        print(text, flush=True)
        lines.append(text)

    with tempfile.TemporaryDirectory() as scratch:
        where = a.keep or scratch
        os.makedirs(where, exist_ok=True)
        small = os.path.join(where, "small.json")
        subprocess.check_call([sys.executable, os.path.join(HERE, "make_trace.py"), "-o", small, "--cells", "1"])
        plain, expected = make(where, "trace.json", a.cells, log)
        packed = plain + ".gz"
        with open(plain, "rb") as f, gzip.open(packed, "wb", compresslevel=3) as g:
            while block := f.read(1 << 20):
                g.write(block)
        size = expected["json_bytes"] / 1e6
        arms = [Arm("analyze, .json", [a.shardscope, "analyze", plain], size),
                Arm("analyze, .json.gz", [a.shardscope, "analyze", packed], size),
                Arm("gunzip alone (zlib)", [sys.executable, "-c", GUNZIP, packed], size),
                Arm("analyze, a trace of 17 events", [a.shardscope, "analyze", small], 0)]
        hta = Arm("HolisticTraceAnalysis, .json", [a.hta, "-c", HTA, plain, where], size) if a.hta else None
        for _ in range(a.repeat):
            for arm in arms + ([hta] if hta else []):
                arm.run()
        large = None
        if a.large:
            path, large_expected = make(where, "large.json", a.large, log)
            large = Arm("analyze, the large .json", [a.shardscope, "analyze", path], large_expected["json_bytes"] / 1e6)
            large.run()
            if not a.keep:
                os.remove(path)
        log()
        log("| | CPU s | wall s | MB of JSON per CPU second | peak MB |")
        log("|---|---|---|---|---|")
        for arm in arms + [x for x in (large, hta) if x]:
            log(arm.row())
        log()
        truth = 100 * expected["overlapped"] / expected["communication"]
        log(f"Overlap by construction {truth:.4f} %; analyze says {overlap_of(a.shardscope, plain):.4f} %" +
            (f", HolisticTraceAnalysis {float(hta.runs[0].text.split()[-1]):.2f} %." if hta else "."))
        if hta:
            ratio = sorted(h.cpu / o.cpu for h, o in zip(hta.runs, arms[0].runs))
            wall = sorted(h.wall / o.wall for h, o in zip(hta.runs, arms[0].runs))
            log(f"Within a round HolisticTraceAnalysis takes {statistics.median(ratio):.0f} times the CPU time "
                f"({ratio[0]:.0f} to {ratio[-1]:.0f}), {statistics.median(wall):.0f} times the wall time ({wall[0]:.0f} to {wall[-1]:.0f}) "
                f"and {hta.least('peak') / max(r.peak for r in arms[0].runs):.0f} times the memory.")
        if a.out:
            write_page(a, lines)


def write_page(a, lines):
    revision = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    command = "bench/trace_speed.py shardscope" + "".join(
        f" --{k} {v}" for k, v in (("cells", a.cells), ("repeat", a.repeat), ("large", a.large)) if v) + (" --hta PYTHON" if a.hta else "")
    with open(a.out, "w") as f:
        f.write("# Reading traces: shardscope beside HolisticTraceAnalysis\n\n"
                f"`{command}`, revision {revision}, {time.strftime('%Y-%m-%d')}, on {os.cpu_count()} cores of {cpu_name()}; "
                f"load average during the run {os.getloadavg()[1]:.1f}.\n" +
                (f"{versions(a.hta)}.\n" if a.hta else "") + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
