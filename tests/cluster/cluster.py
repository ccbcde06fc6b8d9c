"""What the cluster tests share: a run of this program to compare with, checks, and skipping with a sentence."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
import whole_torch  # noqa: E402

CASE = ["--set", "layers=2,dim=64,heads=4,kv_heads=4,ffn=160,vocab=128", "--seq", "32", "--steps", "3", "--warmup", "1"]
SPEC = """name: cluster
base: {set: "layers=2,dim=64,heads=4,kv_heads=4,ffn=160,vocab=128", seq: 32, steps: 3, warmup: 1}
axes: {wrap: [root, block], batch: [1, 2]}
repeat: {min: 2, max: 2}
timeout: 60s
"""
failures = []


def skip(sentence):
    print("skipped: " + sentence)
    sys.exit(77)


def need_root():
    if os.geteuid() != 0:
        skip("needs root")


def program(name, package):
    for folder in os.environ["PATH"].split(":") + ["/usr/sbin", "/sbin"]:
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    skip(f"{name} is not installed; scripts/dependencies --cluster installs the package {package}")


def torchrun(python):
    """PyTorch's launcher as words of a command, and None; or why it is not there. The Python's own console script where it has one."""
    if not python:
        return [], "no Python with PyTorch"
    why = whole_torch.why_not(python)
    script = os.path.join(os.path.dirname(python), "torchrun")
    return ([script] if os.access(script, os.X_OK) else [python, "-m", "torch.distributed.run"]), why


def check(what, good, detail=""):
    print(f"{'ok  ' if good else 'FAIL'}  {what}" + ("" if good else f"\n{detail}"), flush=True)
    if not good:
        failures.append(what)


def finish():
    sys.exit(1 if failures else 0)


def call(words, timeout=120, **more):
    """In a process group of its own, which is ended when the time is over."""
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more)
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        err += f"\n(killed after {timeout} s)"
    return subprocess.CompletedProcess(words, p.returncode, out, err)


def document(done):
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"status": "no document", "reason": f"exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"}


def alone(shardscope, more=()):
    """The same case with ranks that the program starts itself."""
    return document(call([shardscope, "run", "--json", *CASE, *more]))


def check_same(what, joined, reference, contract, hosts, collectives):
    e = joined.get("environment", {})
    check(f"{what}: ok, step {joined.get('step_ns', 0) / 1e6:.2f} ms", joined.get("status") == "ok", joined.get("reason"))
    check(f"{what}: losses are those of a run that starts its ranks", joined.get("losses") == reference["losses"],
          f"{joined.get('losses')} against {reference['losses']}")
    told = (e.get("launched_by"), e.get("hosts"), e.get("collectives"))
    check(f"{what}: {contract}, {hosts}, {collectives}", told == (contract, hosts, collectives), str(told))


def check_pytorch(what, launch, shardscope, reference, python, hosts):
    """Ranks of PyTorch's own FSDP under the same launcher; where there is no whole PyTorch, that is said."""
    why = whole_torch.why_not(python)
    if why:
        print(f"--    {what}, PyTorch's ranks: no whole PyTorch in {python} ({why})", flush=True)
        return
    more = {"env": {**os.environ, "SHARDSCOPE_PYTHON": python}}
    for runtime in ("fsdp2", "fsdp1"):
        row = document(call([*launch, shardscope, "run", "--json", "--runtime", runtime, *CASE], **more))
        losses, wanted = row.get("losses", []), reference["losses"]
        same = len(losses) == len(wanted) and all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(losses, wanted))
        told = row.get("environment", {}).get("hosts")
        check(f"{what}, {runtime} on {hosts}: losses as ours", row["status"] == "ok" and same and told == hosts, f"{row['status']} {row['reason']} {losses} {told}")


def per_rank(directory, variable, command):
    """A shell command whose standard error and exit code are kept by rank, also when the launcher ends it because another rank has failed."""
    return ["sh", "-c", f"trap '' TERM; {command} 2>{directory}/${variable}.err; code=$?; echo $code >{directory}/${variable}.code; exit $code"]


def check_table(what, directory, ranks, words):
    for r in range(ranks):
        err = open(f"{directory}/{r}.err").read() if os.path.exists(f"{directory}/{r}.err") else ""
        code = open(f"{directory}/{r}.code").read().strip() if os.path.exists(f"{directory}/{r}.code") else "none"
        rows = [line for line in err.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
        check(f"{what}: rank {r} ends with 2 and shows a table of all", code == "2" and len(rows) == ranks and words in err,
              f"exit {code}: {err}")


def no_ranks_left():
    """No rank program of ours runs any more."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        left = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                if open(path, "rb").read().split(b"\0")[0] == rank_program.encode():
                    left.append(path)
            except OSError:
                pass
        if not left:
            return True
        time.sleep(0.1)
    return False


def setup():
    """Copies of the programs under names of their own, so that no other process is meant. Returns shardscope, a folder."""
    global rank_program
    folder = tempfile.mkdtemp(prefix="shardscope-cluster-")
    shardscope = os.path.abspath(sys.argv[1])
    rank_program = os.path.join(folder, "shardscope-rank")
    os.symlink(os.path.join(os.path.dirname(shardscope), "shardscope-rank"), rank_program)
    os.environ["SHARDSCOPE_RANK"] = rank_program
    import atexit
    atexit.register(shutil.rmtree, folder, True)
    return shardscope, folder
