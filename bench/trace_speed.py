#!/usr/bin/env python3
"""trace_speed.py: how fast `shardscope analyze` reads, against the floor of reading and decompressing alone.

  trace_speed.py build/bin/shardscope [--cells 60000] [--repeat 3] [--keep DIR]

Makes one trace (make_trace.py) plain and as gzip; prints CPU seconds, MB of JSON per CPU second, peak memory.
"""
import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command):
    """CPU seconds, wall seconds, peak MB of one process."""
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")
    return usage.ru_utime + usage.ru_stime, time.time() - began, usage.ru_maxrss / 1024


def cpu_of_gunzip(path):
    began = resource.getrusage(resource.RUSAGE_SELF)
    with gzip.open(path, "rb") as f:
        while f.read(1 << 20):
            pass
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime - began.ru_utime - began.ru_stime


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("shardscope")
    p.add_argument("--cells", type=int, default=60000, help="17 events each")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--keep", help="leave the traces in this directory")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = a.keep or scratch
        os.makedirs(where, exist_ok=True)
        plain = os.path.join(where, "big.json")
        subprocess.check_call([sys.executable, os.path.join(HERE, "make_trace.py"), "-o", plain, "--cells", str(a.cells)])
        packed = plain + ".gz"
        with open(plain, "rb") as f, gzip.open(packed, "wb", compresslevel=3) as g:
            while block := f.read(1 << 20):
                g.write(block)
        size = os.path.getsize(plain) / 1e6
        events = json.load(open(plain + ".expected.json"))["events"]
        print(f"{events} events, {size:.1f} MB of JSON, {os.path.getsize(packed) / 1e6:.1f} MB of gzip")
        for path in (plain, packed):
            best = min(run([a.shardscope, "analyze", path]) for _ in range(a.repeat))
            print(f"analyze {os.path.basename(path):12} CPU {best[0]:.3f} s  {size / best[0]:6.0f} MB/s  wall {best[1]:.3f} s  peak {best[2]:.0f} MB")
        print(f"gunzip alone             CPU {cpu_of_gunzip(packed):.3f} s  (zlib)")


if __name__ == "__main__":
    main()
