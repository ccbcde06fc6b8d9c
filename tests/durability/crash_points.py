#!/usr/bin/env python3
"""Kills and disk errors at every change that a small sweep makes to its directory, and what is there afterwards.

  crash_points.py --program shardscope --rank fake_rank --preload disk_faults.so [--points N] [--seed N] [--all] [--kills N]

A sweep of two traced cases, once plain and once interleaved, meets at its n-th change (disk_faults.cc) a kill, EIO or
ENOSPC. Checked each time:
  the sweep      ends with 0 to 3 and, unless 0, says why; it never dies by itself
  power cut      (kill) the directory as it was last synced, what was not synced lost: every case that the sweep had reported is
                 there with its trace
  go on          the same command, from the directory as it is and as the power cut left it, ends with 0; both cases and their
                 traces are whole; results.csv is there, and rounds.csv with all rounds; no unfinished file is left
Without --all, N points spread over the sweep for each fault. --kills N: kills at random moments instead of points.
--allocations N: the n-th allocation fails in commands that read files, at N points each: they answer or say why.
Ranks are the fake of tests/trial; a seed is printed. Exit code 1 when a check fails.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

SPECS = {
    "plain": "base: {steps: 2}\naxes: {wrap: [root, block]}\nrepeat: {min: 1, max: 1}\n",
    "interleaved": "base: {steps: 2}\naxes: {wrap: [root, block]}\nrepeat: {min: 2, max: 2}\ninterleave: {repetitions: 1, time: 1s, pin: false}\n",
}
REPORTED = re.compile(r"^\[ *\d+/2\] (wrap=\S+) .*\bok\b", re.M)


class Checks:
    def __init__(self):
        self.failed, self.done = [], 0

    def check(self, holds, text):
        self.done += 1
        if not holds:
            self.failed.append(text)
            print("FAILED", text, flush=True)


class Sweep:
    """One results directory below a folder of its own, which counts as the disk."""

    def __init__(self, options, kind):
        self.options, self.kind = options, kind
        self.disk = pathlib.Path(tempfile.mkdtemp(prefix="disk_", dir=options.scratch)).resolve()
        self.shadow = pathlib.Path(tempfile.mkdtemp(prefix="shadow_", dir=options.scratch)).resolve()
        self.spec = self.shadow / "s.yaml"
        self.spec.write_text(SPECS[kind])
        self.out = self.disk / "out"

    def run(self, fault=None, shadow=False, delay=None):
        env = dict(os.environ, SHARDSCOPE_RANK=self.options.rank, FAKE_RANK="")
        if fault or shadow:
            env.update(LD_PRELOAD=self.options.preload, DISK_DIR=str(self.disk), DISK_COUNT=str(self.shadow / "count"))
            if fault:
                env["DISK_FAULT"] = fault
            if shadow:
                env["DISK_SHADOW"] = str(self.shadow)
        process = subprocess.Popen([self.options.program, "sweep", str(self.spec), "-o", str(self.out)], env=env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if delay is not None:
            time.sleep(delay)
            process.kill()
        said = process.communicate(timeout=300)[1]
        return process.returncode, said

    def count(self):
        return int((self.shadow / "count").read_text())

    def cut_power(self):
        """Rebuilds what was synced in the place of the directory."""
        root = os.stat(self.disk).st_ino
        inodes = {}
        shutil.rmtree(self.out, ignore_errors=True)

        def build(inode, place):
            listing = self.shadow / f"d.{inode}"
            place.mkdir(exist_ok=True)
            for line in listing.read_text().splitlines() if listing.exists() else []:
                kind, number, name = line.split(" ", 2)
                if kind == "d":
                    build(number, place / name)
                else:
                    content = self.shadow / f"f.{number}"
                    (place / name).write_bytes(content.read_bytes() if content.exists() else b"")
        build(root, self.disk)
        return inodes

    def remove(self):
        shutil.rmtree(self.disk, ignore_errors=True)
        shutil.rmtree(self.shadow, ignore_errors=True)


def whole_trace(path):
    try:
        with gzip.open(path) as f:
            return len(json.load(f)["traceEvents"]) > 10
    except (OSError, EOFError, ValueError, KeyError):
        return False


def cases_of(out):
    """wrap -> (id, status) of what the database holds; the file itself is left as it is."""
    with tempfile.TemporaryDirectory() as copy:
        for name in ("results.db", "results.db-wal"):
            if (out / name).exists():
                shutil.copy(out / name, copy)
        if not os.path.exists(copy + "/results.db") or os.path.getsize(copy + "/results.db") == 0:
            return {}
        db = sqlite3.connect(copy + "/results.db")
        try:
            return {f"wrap={w}": (i, s) for i, s, w in db.execute(
                "SELECT c.id, c.status, a.value FROM cases c JOIN axes a USING (case_index) WHERE a.name = 'wrap'")}
        except sqlite3.OperationalError:
            return {}
        finally:
            db.close()


def check_promise(checks, sweep, said, what):
    there = cases_of(sweep.out)
    for wrap in REPORTED.findall(said):
        checks.check(wrap in there, f"{what}: {wrap} was reported and is lost")
        if wrap in there:
            checks.check(whole_trace(sweep.out / "traces" / (there[wrap][0] + ".json.gz")), f"{what}: the trace of {wrap} is lost")


def check_goes_on(checks, sweep, what):
    code, said = sweep.run()
    checks.check(code == 0, f"{what}: going on ended with {code}: {said[-300:]}")
    if code != 0:
        return
    there = cases_of(sweep.out)
    checks.check(sorted(s for _, s in there.values()) == ["ok", "ok"], f"{what}: cases {there}")
    for ident, _ in there.values():
        checks.check(whole_trace(sweep.out / "traces" / (ident + ".json.gz")), f"{what}: no trace of {ident}")
    left = [str(p) for p in sweep.out.rglob("*") if p.name.endswith((".tmp", ".part"))]
    checks.check(not left, f"{what}: left {left}")
    csv = sweep.out / "results.csv"
    checks.check(csv.exists() and csv.read_text().count("\n") == 3, f"{what}: results.csv")
    if sweep.kind == "interleaved":
        rounds = sweep.out / "rounds.csv"
        checks.check(rounds.exists() and rounds.read_text().count("\n") == 5, f"{what}: rounds.csv")
        checks.check(not (sweep.out / "rounds").exists(), f"{what}: rounds/ is left")


def at_point(checks, options, kind, fault, n):
    what = f"{kind} {fault}:{n}"
    sweep = Sweep(options, kind)
    killed = fault == "kill"
    code, said = sweep.run(f"{fault}:{n}", shadow=killed)
    if killed:
        checks.check(code in (-signal.SIGKILL, 0), f"{what}: ended with {code}")
    else:
        checks.check(code in (0, 1, 2, 3), f"{what}: ended with {code}: {said[-300:]}")
        checks.check(code == 0 or "shardscope: " in said, f"{what}: ended with {code} and said nothing")
    kept = Sweep(options, kind) if killed else None
    if killed:
        shutil.copytree(sweep.out, kept.out, symlinks=True) if sweep.out.exists() else None
    if killed:
        sweep.cut_power()
        check_promise(checks, sweep, said, what + " and power")
        check_goes_on(checks, sweep, what + " and power")
        check_goes_on(checks, kept, what)
        kept.remove()
    else:
        check_goes_on(checks, sweep, what)
    sweep.remove()


def random_kill(checks, options, number, generator):
    kind = ("plain", "interleaved")[number % 2]
    sweep = Sweep(options, kind)
    for _ in range(generator.choice((1, 1, 2, 3))):
        _, said = sweep.run(delay=generator.uniform(0, options.longest))
        check_promise(checks, sweep, said, f"random kill {number}")
    check_goes_on(checks, sweep, f"random kill {number} ({kind})")
    sweep.remove()


def failed_allocations(checks, options, generator):
    sweep = Sweep(options, "plain")
    checks.check(sweep.run()[0] == 0, "the sweep for the readers")
    trace = str(next((sweep.out / "traces").glob("*.gz")))
    plan = sweep.shadow / "plan.yaml"
    plan.write_text('units:\n  - match: "model.layers.*"\n    strategy: full_shard\n')
    commands = (["report", str(sweep.out)], ["recommend", str(sweep.out)], ["compare", str(sweep.out), str(sweep.out)], ["analyze", trace],
                ["plan", "--wrap", f"plan:{plan}"], ["sweep", str(sweep.spec), "--dry-run"],
                ["sweep", str(sweep.spec), "-o", str(sweep.out)])
    for command in commands:
        for _ in range(options.allocations):
            n = 500 + int(10 ** generator.uniform(0, 5))  # past what happens before main()
            env = dict(os.environ, LD_PRELOAD=options.preload, MALLOC_FAULT=str(n), SHARDSCOPE_RANK=options.rank)
            r = subprocess.run([options.program, *command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300)
            what = f"allocation {n} of {command[0]}"
            checks.check(r.returncode in (0, 1, 2, 3), f"{what}: ended with {r.returncode}: {r.stderr[-200:]}")
            checks.check(r.returncode in (0, 1) or "shardscope: " in r.stderr, f"{what}: ended with {r.returncode} and said nothing")
    check_goes_on(checks, sweep, "after failed allocations")
    sweep.remove()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("program", "rank", "preload"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--points", type=int, default=4)
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--all", action="store_true")
    p.add_argument("--kills", type=int, default=0)
    p.add_argument("--allocations", type=int, default=0)
    options = p.parse_args()
    generator = random.Random(options.seed)
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="crash_points_") as options.scratch:
        begin, points = time.time(), 0
        for kind in SPECS:
            counting = Sweep(options, kind)
            started = time.time()
            code, said = counting.run(shadow=True)
            options.longest = 1.2 * (time.time() - started)
            checks.check(code == 0, f"{kind}: without a fault it ended with {code}: {said}")
            total = counting.count()
            check_promise(checks, counting, said, kind)
            counting.cut_power()
            check_promise(checks, counting, said, kind + " and power after its end")
            counting.remove()
            print(f"{kind}: {total} changes of the disk", flush=True)
            for fault in ("kill", "EIO", "ENOSPC"):
                chosen = range(1, total + 1) if options.all else sorted(generator.sample(range(1, total + 1), min(options.points, total)))
                for n in chosen:
                    at_point(checks, options, kind, fault, n)
                    points += 1
        for number in range(options.kills):
            random_kill(checks, options, number, generator)
        if options.allocations:
            failed_allocations(checks, options, generator)
        print(f"seed {options.seed}: {points} points, {options.kills} random kills, {checks.done} checks, {len(checks.failed)} failed, "
              f"{time.time() - begin:.0f} s")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
