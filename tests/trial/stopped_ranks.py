"""A rank that is stopped, killed, exits or sleeps, while starting and in a step: the run ends within step_timeout + 5 s,
names that rank and no other as the cause, and leaves no process.

usage: stopped_ranks.py SHARDSCOPE [--torchrun TORCHRUN] [--all] [--runs N] [--step-timeout SECONDS] [--only WORD,...]

Without --all a covering subset. "Sleeps" is the main thread alone, "exits" a call of exit(3) in the middle of its work: a
library of this test's own, preloaded into the ranks, does both when told by a signal. With torchrun the worker itself is
stopped too ("worker").
"""
import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from processes import lives, processor_s  # noqa: E402

WORLD = 3
GRACE_S = 5.0
PRELOAD = """
#include <signal.h>
#include <string.h>
#include <unistd.h>
static void fall_asleep(int s) { (void)s; for (;;) pause(); }
static void leave(int s) { (void)s; _exit(3); }
__attribute__((constructor)) static void prepare(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = fall_asleep;
  sigfillset(&a.sa_mask);   /* nothing else runs on the main thread then */
  sigaction(SIGUSR1, &a, 0);
  a.sa_handler = leave;
  sigaction(SIGUSR2, &a, 0);
}
"""
SIGNALS = {"SIGSTOP": signal.SIGSTOP, "SIGKILL": signal.SIGKILL, "exit": signal.SIGUSR2, "sleeping": signal.SIGUSR1,
           "worker": signal.SIGSTOP}


def works(torchrun):
    """The launcher itself needs the whole of PyTorch, which a CPU build of this program does not."""
    try:
        return os.access(torchrun, os.X_OK) and subprocess.run([torchrun, "--help"], capture_output=True).returncode == 0
    except OSError:
        return False


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("shardscope")
    p.add_argument("--torchrun", default="")
    p.add_argument("--all", action="store_true")
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("--step-timeout", type=float, default=2.0)
    p.add_argument("--only", default="", help="cells that hold all of these words")
    return p.parse_args()


def preload(folder):
    source, library = os.path.join(folder, "faults.cc"), os.path.join(folder, "faults.so")
    with open(source, "w") as f:
        f.write(PRELOAD)
    subprocess.run([os.environ.get("CC", "c++"), "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class Cell:
    def __init__(self, rank, fault, phase, collectives, launcher):
        self.rank, self.fault, self.phase, self.collectives, self.launcher = rank, fault, phase, collectives, launcher
        self.random = random.Random(str(self))

    def __str__(self):
        return f"rank {self.rank} {self.fault} {self.phase}, {self.collectives}, {self.launcher}"

    def run(self, options, folder, library, number):
        logs = os.path.join(folder, f"logs{number}")
        case = ["run", "--json", "--log-dir", logs, "--step-timeout", f"{options.step_timeout:g}s", "--collectives", self.collectives,
                "--set", "layers=2,dim=64,heads=4,kv_heads=4,ffn=160,vocab=128", "--seq", "32",
                "--steps", "1000000" if self.phase == "step" else "200000"]
        words = [options.shardscope, *case]
        if self.launcher == "torchrun":
            words = [options.torchrun, "--standalone", "--nproc-per-node", str(WORLD), "--no-python", *words]
        else:
            words += ["--world", str(WORLD)]
        env = {**os.environ, "LD_PRELOAD": library, "OMP_NUM_THREADS": "1"}
        with open(os.path.join(folder, "out"), "w+") as out, open(os.path.join(folder, "err"), "w+") as err:
            p = subprocess.Popen(words, stdout=out, stderr=err, env=env, start_new_session=True)
            mark = self.strike(p, logs, options)
            ended, limit = None, options.step_timeout + GRACE_S
            if mark is not None:
                ended = wait(lambda: self.is_over(p), mark, limit + 60)
            left = self.left_over(logs)
            for pid in left:
                kill(pid)
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            out.seek(0), err.seek(0)
            return self.judge(out.read(), err.read(), mark, ended, limit, left)

    def is_over(self, p):
        """Our own launcher has ended; of torchrun, which takes its time, the processes that are ours have."""
        return p.poll() is not None if self.launcher == "own" else not self.ours

    @property
    def ours(self):
        return [pid for pid in self.seen if lives(pid)]

    def strike(self, p, logs, options):
        end = time.monotonic() + 120
        self.seen = set()
        while time.monotonic() < end and p.poll() is None:
            pids = ranks_by_log(logs)
            self.seen |= set(pids.values()) | {parent(pid) for pid in pids.values() if self.launcher == "torchrun"}
            if len(pids) == WORLD and (self.phase == "start" or all(processor_s(pid) > 1.0 for pid in pids.values())):
                pid = pids[self.rank]
                if self.phase == "start":
                    # From before LibTorch is loaded to the first connections, another moment each time.
                    time.sleep(self.random.uniform(0, 0.6))
                target = parent(pid) if self.fault == "worker" else pid
                if not lives(target):
                    continue
                os.kill(target, SIGNALS[self.fault])
                return time.monotonic()
            time.sleep(0.01)
        return None

    def left_over(self, logs):
        end = time.monotonic() + 1
        while time.monotonic() < end and self.ours:
            time.sleep(0.02)
        return self.ours

    def judge(self, out, err, mark, ended, limit, left):
        if mark is None:
            return False, 0.0, f"the fault was not injected: {err[-300:]}"
        took = None if ended is None else ended - mark
        text = "; ".join(line for line in err.splitlines() if line.startswith("shardscope: ")) or err
        try:
            text = json.loads(out)["reason"]
        except (ValueError, KeyError):
            pass
        wrong = []
        if took is None or took > limit:
            wrong.append("did not end" if took is None else f"took {took:.1f} s")
        named = text.split(";")[0]
        if f"rank {self.rank} " not in named and f"rank {self.rank}:" not in named:
            wrong.append("the rank is not named")
        if any(f"rank {r} " in named or f"rank {r}:" in named for r in range(WORLD) if r != self.rank):
            wrong.append("another rank is blamed")
        if left:
            wrong.append(f"left {left}")
        return not wrong, took or 0.0, f"{', '.join(wrong)}: {text[-400:]}" if wrong else text[:200]


def ranks_by_log(logs):
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.path.basename(os.readlink(f"/proc/{entry}/exe")) == "shardscope-rank":
                log = os.readlink(f"/proc/{entry}/fd/1")
                if log.startswith(logs + "/rank"):
                    found[int(log[len(logs) + 5:].split(".")[0])] = int(entry)
        except (OSError, ValueError):
            pass
    return found


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def wait(condition, begin, seconds):
    while time.monotonic() - begin < seconds:
        if condition():
            return time.monotonic()
        time.sleep(0.02)
    return None


def cells(options):
    launchers = ["own"] + (["torchrun"] if options.torchrun else [])
    faults = ["SIGSTOP", "SIGKILL", "exit", "sleeping"]
    if options.all:
        every = [Cell(*c) for c in itertools.product(range(WORLD), faults, ("start", "step"), ("local", "gloo"), launchers)]
        every += [Cell(r, "worker", "step", c, "torchrun") for r in range(WORLD) for c in ("local", "gloo") if options.torchrun]
    else:
        every = [Cell(0, "SIGSTOP", "step", "gloo", "own"), Cell(1, "SIGSTOP", "start", "local", "own"),
                 Cell(2, "sleeping", "step", "local", "own"), Cell(1, "sleeping", "step", "gloo", "own"),
                 Cell(0, "exit", "start", "gloo", "own"), Cell(2, "SIGKILL", "step", "gloo", "own"),
                 Cell(2, "SIGSTOP", "start", "gloo", "own")]
        if options.torchrun:
            every += [Cell(1, "SIGSTOP", "step", "gloo", "torchrun"), Cell(0, "worker", "step", "local", "torchrun")]
    words = [w for w in options.only.split(",") if w]
    return [c for c in every if all(w in str(c) for w in words)]


def main():
    options = arguments()
    options.shardscope = os.path.abspath(options.shardscope)
    if options.torchrun and not works(options.torchrun):
        print("--    torchrun does not start here: its cells are not run")
        options.torchrun = ""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="shardscope-stopped-") as folder:
        library = preload(folder)
        number = 0
        for cell in cells(options):
            good, longest, words = 0, 0.0, []
            for _ in range(options.runs):
                number += 1
                ok, took, text = cell.run(options, folder, library, number)
                good += ok
                longest = max(longest, took)
                if not ok or not words:
                    words.append(text)
            failed += options.runs - good
            print(f"{'ok  ' if good == options.runs else 'FAIL'}  {cell}: {good} of {options.runs}, {longest:.1f} s at most",
                  flush=True)
            for text in words if good < options.runs else []:
                print("      " + text.replace("\n", " | "), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
