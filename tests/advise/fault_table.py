"""Injects faults into sweeps of the real program and holds three promises: the outcome is the one that the fault
deserves, no process is left behind, and no finished case is lost. Ranks are the fake of tests/trial, which fails where it is
told to; with --rank also the real ones, which are hit from outside.

usage: fault_table.py SHARDSCOPE FAKE_RANK [--rank SHARDSCOPE_RANK] [--clock LIBRARY] [--only GROUP ...]

  --clock  a library to preload that makes the wall clock jump (clock_jump.cc)
"""
import argparse
import collections
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("shardscope")
parser.add_argument("fake_rank")
parser.add_argument("--rank")
parser.add_argument("--clock")
parser.add_argument("--only", nargs="+", default=[])
arguments = parser.parse_args()
SHARDSCOPE, FAKE_RANK = os.path.abspath(arguments.shardscope), os.path.abspath(arguments.fake_rank)
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
        if words[0] in (rank_program.encode(), real_rank.encode()) and state != "Z":
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
        out, err = process.communicate(timeout=PATIENCE)
        self.err = err
        return process.returncode

    def statuses(self):
        if not os.path.exists(self.out + "/results.db"):
            return []
        with sqlite3.connect(f"file:{self.out}/results.db?mode=ro", uri=True) as db:
            return [s for s, in db.execute("SELECT status FROM cases")]


PATIENCE = 120   # seconds for what must happen at last


def wait_for(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def row(name, outcome, expected, kept=True):
    gone = wait_for(lambda: not living_ranks())
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
    process.communicate(timeout=PATIENCE)
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
        process.communicate(timeout=PATIENCE)
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
    process.communicate(timeout=PATIENCE)
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
    """Times of records come from the wall clock, durations do not."""
    s = Sweep()
    s.run()
    with sqlite3.connect(s.out + "/results.db") as db:
        db.execute("UPDATE cases SET started_at = 4102444800, finished_at = 1")
    row("records that another program changed are refused", (s.run(), s.statuses()), (2, ["ok"] * 3))
    if not arguments.clock:
        return print("--    the wall clock jumps during a sweep: needs --clock; not run")
    for seconds in (-86400, 86400):
        s = Sweep()
        code = s.run(LD_PRELOAD=os.path.abspath(arguments.clock), CLOCK_JUMP_S=str(seconds), CLOCK_JUMP_AFTER="3")
        with sqlite3.connect(f"file:{s.out}/results.db?mode=ro", uri=True) as db:
            spans = [b - a for a, b in db.execute("SELECT started_at, finished_at FROM cases ORDER BY started_at")]
        jumped = any(abs(x) > 80000 for x in spans)
        row(f"the wall clock jumps by {seconds:+} s during a case", (code, jumped, s.statuses()), (0, True, ["ok"] * 3))


def read_only_mount():
    mount = tempfile.mkdtemp(dir=work)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "none", mount], capture_output=True).returncode != 0:
        return print("--    a file system that becomes read-only: needs the right to mount one; not run")
    try:
        s = Sweep()
        s.out = os.path.join(mount, "out")
        process = first_finished(s, "0 hang repetition1")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        code = s.run(FAKE_RANK="")
        said = s.err.count("\n")
        subprocess.run(["mount", "-o", "remount,rw", mount])
        row("a file system that becomes read-only: one sentence", (code != 0, said), (True, 1), s.statuses()[:1] == ["ok"])
    finally:
        subprocess.run(["umount", "-l", mount])


# ---- real ranks, hit from outside

REAL = """name: faults
base: {set: "layers=2,dim=64,heads=4,kv_heads=4,ffn=160,vocab=128", seq: 32, steps: STEPS, warmup: 1, step_timeout: 10s, collectives: KIND}
repeat: {min: 1, max: 1}
timeout: 60s
"""


class RealSweep(Sweep):
    def __init__(self, steps=2, kind="local"):
        super().__init__(spec=REAL.replace("STEPS", str(steps)).replace("KIND", kind))
        self.environment["SHARDSCOPE_RANK"] = real_rank

    def row(self):
        with sqlite3.connect(f"file:{self.out}/results.db?mode=ro", uri=True) as db:
            return db.execute("SELECT status, reason, coalesce(step_ns, 0) FROM cases").fetchone()


def of_real_ranks():
    if not arguments.rank:
        return print("--    faults of real ranks: need --rank; not run")
    for kind in ("local", "gloo"):
        probe = RealSweep(steps=200, kind=kind)
        began = time.monotonic()
        probe.run()
        step = probe.row()[2] / 1e9
        start = max(0.3, time.monotonic() - began - 401 * step)  # of the processes, until the first step
        when = Moment(kind, start, max(step, 1e-6))
        for rank in (0, 1):
            for phase, repetitions in (("start", None), ("the repetition", 0.5), ("the traced repetition", 1.5)):
                hit_one(when, rank, phase, repetitions, signal.SIGKILL, "crashed", "was killed by SIGKILL")
        hit_one(when, 1, "the repetition", 0.5, signal.SIGSTOP, "timeout", "")
        hit_one(when, 0, "the repetition", 0.5, signal.SIGSEGV, "crashed", "SIGSEGV")


Moment = collections.namedtuple("Moment", "kind start step")  # seconds until the first step, and of a step


def hit_one(when, rank, phase, repetitions, how, status, words):
    """On a machine that becomes idle a run may be over before it is hit: then a longer one, hit earlier in it."""
    for seconds, earlier in ((2, 1), (6, 0.67), (18, 0.33)):  # of a repetition; the traced one after it takes as long
        s = RealSweep(max(10, int(seconds / when.step)), when.kind)
        process = s.start()
        wait_for(lambda: len(living_ranks()) == 2)
        if repetitions:
            time.sleep(when.start + earlier * repetitions * seconds)
        ranks = sorted(living_ranks())
        if len(ranks) == 2:
            os.kill(ranks[rank], how)
        process.communicate(timeout=PATIENCE)
        got, reason, _ = s.row()
        if len(ranks) == 2 and got != "ok":
            break
    row(f"real, {when.kind}: {how.name} of rank {rank} in {phase}", (process.returncode, got, words in reason),
        (0, status, True))


def host_oom_kill():
    """A control group with less memory than the ranks need: the kernel ends one."""
    if not arguments.rank:
        return print("--    the kernel ends a rank for want of memory: needs --rank; not run")
    group = make_group(60 << 20)
    if group is None:
        return print("--    the kernel ends a rank for want of memory: needs a memory control group; not run")
    try:
        s = RealSweep()
        process = subprocess.Popen(["sh", "-c", f"echo $$ >{group}/cgroup.procs && exec \"$@\"", "sh", SHARDSCOPE, "sweep",
                                    s.spec, "-o", s.out], env=s.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.communicate(timeout=PATIENCE)
        got, reason, _ = s.row()
        row("the kernel ends a rank for want of memory", (process.returncode, got, "killed by the kernel" in reason),
            (0, "oom", True))
    finally:
        wait_for(lambda: not open(f"{group}/cgroup.procs").read())
        os.rmdir(group)


def make_group(limit):
    """Version 1 or 2 of control groups."""
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = f"{root}/shardscope-faults-{os.getpid()}"
        try:
            os.mkdir(group)
            with open(f"{group}/{file}", "w") as f:
                f.write(str(limit))
            for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
                if os.path.exists(f"{group}/{swap}"):
                    with open(f"{group}/{swap}", "w") as f:
                        f.write(str(limit if swap.startswith("memory.memsw") else 0))
            return group
        except OSError:
            if os.path.isdir(group):
                os.rmdir(group)
    return None


def port_taken():
    """Another program listens where the ranks of a launcher are to meet."""
    if not arguments.rank:
        return print("--    the port of the rendezvous is taken: needs --rank; not run")
    import socket
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        contract = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(taken.getsockname()[1]), "SHARDSCOPE_RANK": real_rank}
        done = subprocess.run([SHARDSCOPE, "run", "--step-timeout", "5s"], env={**os.environ, **contract},
                              capture_output=True, text=True, timeout=PATIENCE)
    row("the port of the rendezvous is taken: exit 3, one sentence",
        (done.returncode, done.stderr.count("\n"), "MASTER_PORT" in done.stderr), (3, 1, True))


if __name__ == "__main__":
    parts = (in_ranks, stop_a_rank, of_the_program, of_files, full_disk, read_only_mount, clock_jump, of_real_ranks,
             host_oom_kill, port_taken)
    if arguments.only:
        parts = [p for p in parts if p.__name__ in arguments.only]
    with tempfile.TemporaryDirectory() as work:
        rank_program = os.path.join(work, "faulty-rank")  # a name of its own, so that no other process is meant
        shutil.copy(FAKE_RANK, rank_program)
        real_rank = os.path.join(work, "real-rank")
        if arguments.rank:
            os.symlink(os.path.abspath(arguments.rank), real_rank)
        for part in parts:
            part()
        print(f"{sum(rows)} of {len(rows)} faults ended as they should")
        sys.exit(0 if all(rows) else 1)
