"""Injects faults into sweeps of the real program (ranks are the fake of tests/trial) and holds three promises: the
outcome is the one that the fault deserves, no process is left behind, and no finished case is lost.

usage: fault_table.py SHARDSCOPE FAKE_RANK [GROUP ...]
"""
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

SHARDSCOPE, FAKE_RANK = (os.path.abspath(p) for p in sys.argv[1:3])
SPEC = "name: faults\nbase: {steps: 2}\naxes: {seed: [0, 1, 2]}\nrepeat: {min: 2, max: 2}\ntimeout: 5s\n"
rows = []


def living_ranks():
    """Ranks that this script's programs started and that still run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if words[0] == rank_program.encode() and state != "Z":
            found.append(int(pid))
    return found


class Sweep:
    def __init__(self, fault="", spec=SPEC, directory=None):
        self.dir = directory or tempfile.mkdtemp(dir=work)
        self.out = os.path.join(self.dir, "out")
        self.spec = os.path.join(self.dir, "s.yaml")
        with open(self.spec, "w") as f:
            f.write(spec)
        self.environment = dict(os.environ, SHARDSCOPE_RANK=rank_program, FAKE_RANK=fault)

    def start(self, **more):
        return subprocess.Popen([SHARDSCOPE, "sweep", self.spec, "-o", self.out], env={**self.environment, **more},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, **more):
        process = self.start(**more)
        out, err = process.communicate(timeout=60)
        self.err = err
        return process.returncode

    def statuses(self):
        if not os.path.exists(self.out + "/results.db"):
            return []
        with sqlite3.connect(f"file:{self.out}/results.db?mode=ro", uri=True) as db:
            return [s for s, in db.execute("SELECT status FROM cases")]


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def row(name, outcome, expected, kept=True):
    gone = wait_for(lambda: not living_ranks(), 5)
    good = outcome == expected and gone and kept
    rows.append(good)
    print(f"{'ok  ' if good else 'FAIL'}  {name:<52} {str(outcome):<46} orphans: {len(living_ranks())}  "
          f"finished kept: {'yes' if kept else 'NO'}" + ("" if outcome == expected else f"  expected {expected}"), flush=True)


def in_ranks():
    """Each rank ends, hangs or complains in each phase: one status for every case, and the sweep goes on."""
    for rank in (0, 1):
        for phase in ("start", "repetition1", "repetition2", "trace"):
            s = Sweep(f"{rank} kill {phase}")
            code = s.run()
            row(f"SIGKILL of rank {rank} in {phase}", (code, s.statuses()), (0, ["crashed"] * 3))
    for action, status in (("abort", "crashed"), ("exit", "crashed"), ("oom", "oom"), ("comm_error", "comm_error"),
                           ("garbage", "crashed"), ("close", "crashed")):
        s = Sweep(f"1 {action} repetition1")
        code = s.run()
        row(f"rank 1: {action}", (code, s.statuses()), (0, [status] * 3))
    one = SPEC.replace("[0, 1, 2]", "[0]").replace("5s", "1s")
    for action in ("hang", "mute"):
        s = Sweep(f"0 {action} repetition1", one)
        code = s.run()
        row(f"rank 0: {action}" + (", deaf to SIGTERM" if action == "mute" else ""), (code, s.statuses()), (0, ["timeout"]))


def stop_a_rank():
    s = Sweep("", SPEC.replace("[0, 1, 2]", "[0]").replace("timeout: 5s", "timeout: 2s").replace("max: 2", "max: 100000"))
    s.environment["FAKE_RANK"] = "1 hang repetition2"
    process = s.start()
    wait_for(living_ranks)
    for pid in living_ranks():
        os.kill(pid, signal.SIGSTOP)
    process.communicate(timeout=60)
    row("SIGSTOP of every rank", (process.returncode, s.statuses()), (0, ["timeout"]))


def first_finished(s, fault):
    """A sweep whose second case hangs; returns once the first is stored."""
    s.environment["FAKE_RANK"] = ""
    with open(s.spec, "w") as f:
        f.write(SPEC.replace("[0, 1, 2]", "[0]"))
    s.run()
    with open(s.spec, "w") as f:
        f.write(SPEC.replace("timeout: 5s", "timeout: 60s"))
    process = subprocess.Popen([SHARDSCOPE, "sweep", s.spec, "-o", s.out, "--extend"],
                               env={**s.environment, "FAKE_RANK": fault}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: len(living_ranks()) == 2)
    return process


def of_the_program():
    for sig, expected in ((signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 130)):
        s = Sweep()
        process = first_finished(s, "0 hang repetition1")
        process.send_signal(sig)
        process.communicate(timeout=60)
        code, kept = process.returncode, s.statuses() == ["ok"]
        with open(s.spec, "w") as f:
            f.write(SPEC.replace("timeout: 5s", "timeout: 60s"))
        again = s.run(FAKE_RANK="")
        row(f"{sig.name} of the sweep, then the same command", (code, again, s.statuses()), (expected, 0, ["ok"] * 3), kept)
    s = Sweep()
    process = first_finished(s, "0 hang repetition1")
    second = subprocess.run([SHARDSCOPE, "sweep", s.spec, "-o", s.out], env=s.environment, capture_output=True, text=True)
    kept = s.statuses() == ["ok"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    row("a second sweep on the directory", (second.returncode, second.stderr.count("\n")), (2, 1), kept)


def of_files():
    s = Sweep()
    s.run()
    with open(s.out + "/results.db", "r+b") as f:
        f.seek(100)
        f.write(os.urandom(2000))
    code = s.run()
    row("a damaged database: refused in one sentence", (code, s.err.count("\n")), (2, 1))
    s = Sweep()
    s.run()
    os.truncate(s.out + "/results.db", os.path.getsize(s.out + "/results.db") // 2)
    row("a database cut in half: refused in one sentence", (s.run(), s.err.count("\n")), (2, 1))
    s = Sweep()
    os.makedirs(s.out)
    with open(s.out + "/results.db", "w") as f:
        f.write("not a database at all, but a text that is longer than a header\n" * 40)
    row("results.db of another program", (s.run(), s.err.count("\n")), (2, 1))
    s = Sweep()
    with open(s.out, "w"):
        pass
    row("a file where the directory should be", (s.run(), s.err.count("\n")), (2, 1))
    s = Sweep()
    s.environment["SHARDSCOPE_RANK"] = "/nowhere/rank"
    row("no rank program", s.run(), 3)
    s = Sweep(spec=SPEC + "repeat: {min: 2}\n")
    row("a spec with a key given twice", (s.run(), s.err.count("\n")), (2, 1))
    if os.geteuid() != 0:
        s = Sweep()
        os.mkdir(s.out, 0o500)
        row("a read-only directory", (s.run(), s.err.count("\n")), (2, 1))
    else:
        row("a read-only directory (/proc)", *read_only())


def read_only():
    s = Sweep()
    s.out = "/proc/shardscope"
    return (s.run(), s.err.count("\n")), (2, 1)


def full_disk():
    mount = tempfile.mkdtemp(dir=work)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", mount],
                                           capture_output=True).returncode != 0:
        print("--    a full disk: needs the right to mount a small tmpfs; not run")
        return
    try:
        s = Sweep(spec=SPEC.replace("[0, 1, 2]", str(list(range(200)))))
        s.out = os.path.join(mount, "out")
        code = s.run()
        said = s.err.splitlines()[-1]
        copy = os.path.join(s.dir, "copy")  # with its write-ahead log, where there is room to read it
        shutil.copytree(s.out, copy)
        with sqlite3.connect(copy + "/results.db") as db:
            whole = db.execute("PRAGMA integrity_check").fetchone()[0]
            stored = db.execute("SELECT count(*) FROM cases").fetchone()[0]
        row(f"a full disk after {stored} cases: one sentence, whole database", (code != 0, said[:11], whole),
            (True, "shardscope:", "ok"))
    finally:
        subprocess.run(["umount", "-l", mount])


def clock_jump():
    """Times of records come from the wall clock, durations do not: a spec that is run after a jump goes on as ever."""
    s = Sweep()
    s.run()
    with sqlite3.connect(s.out + "/results.db") as db:
        db.execute("UPDATE cases SET started_at = 4102444800, finished_at = 1")
    row("records from the future and of negative length", (s.run(), s.statuses()), (0, ["ok"] * 3))


if __name__ == "__main__":
    parts = (in_ranks, stop_a_rank, of_the_program, of_files, full_disk, clock_jump)
    if len(sys.argv) > 3:
        parts = [p for p in parts if p.__name__ in sys.argv[3:]]
    with tempfile.TemporaryDirectory() as work:
        rank_program = os.path.join(work, "faulty-rank")  # a name of its own, so that no other process is meant
        shutil.copy(FAKE_RANK, rank_program)
        for part in parts:
            part()
        print(f"{sum(rows)} of {len(rows)} faults ended as they should")
        sys.exit(0 if all(rows) else 1)
