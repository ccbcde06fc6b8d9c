"""A stranger on the network of a run: two hosts and a third one as network namespaces on one bridge.

usage: stranger_test.py SHARDSCOPE
"""
import hashlib
import hmac
import json
import os
import resource
import secrets
import socket
import subprocess
import sys
import threading
import time

import cluster
from processes import processor_s

SECRET = secrets.token_hex(32)
ADDRESS = ["10.213.78.1", "10.213.78.2", "10.213.78.3"]
PORT = 29721
MB = 1 << 20
GROWTH = 10 * MB


# ---- the stranger: `stranger_test.py PROGRAM stranger WHAT ADDRESS PORT`, in its own namespace
def connect(address, port, timeout=10):
    end = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((address, port), timeout=5)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def flood(s, piece, count):
    """What the other side takes of it."""
    taken = 0
    try:
        for _ in range(count):
            s.sendall(piece)
            taken += len(piece)
    except OSError:
        pass
    return taken


def hear(s):
    s.settimeout(1)
    heard = b""
    try:
        while (more := s.recv(65536)):
            heard += more
    except OSError:
        pass
    return heard


def attack(address, port):
    """Everything at once, then holds a thousand connections until standard input closes. Prints what it has heard."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    heard = b""
    flood(connect(address, port), b"x" * MB, 64)
    flood(connect(address, port), b"\n" * MB, 17)
    hello = {"hello": {"interface": "eth0", "rank": 1, "host": "host1", "pid": 1, "local_rank": 1, "device": "cpu",
                       "settings_hash": "", "settings": [], "version": ""}}
    guess = hmac.new(b"0000000000000000", b"rank", hashlib.sha256).hexdigest()
    for lines in ([hello], [{"end": 0}], [{"knock": "0" * 64}, {"proof": guess}, hello], [{"refused": "no"}], ["GET / HTTP/1.1"]):
        s = connect(address, port)
        try:
            for line in lines:
                s.sendall((line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))).encode() + b"\n")
        except OSError:
            pass
        heard += hear(s)
    held = [connect(address, port) for _ in range(1000)]
    print(json.dumps({"heard": heard.decode("latin-1"), "held": len(held)}), flush=True)
    sys.stdin.read()


def lead(address, port):
    """Plays rank 0 without knowing the secret. Prints what a rank tells it."""
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        heard, end = b"", time.monotonic() + 4
        listener.settimeout(0.2)
        while time.monotonic() < end:
            try:
                s, _ = listener.accept()
            except OSError:
                continue
            for line in ({"challenge": "1" * 64}, {"welcome": "2" * 64},
                         {"prepare": {"shared_memory": "/etc/hostname", "interface": "", "leader_pid": 1, "leader_host": "host1"}}):
                try:
                    s.sendall(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                except OSError:
                    break
            heard += hear(s)
        print(json.dumps({"heard": heard.decode("latin-1")}), flush=True)


if len(sys.argv) > 2 and sys.argv[2] == "stranger":
    {"attack": attack, "lead": lead}[sys.argv[3]](sys.argv[4], int(sys.argv[5]))
    sys.exit(0)

# ---- the test
cluster.need_root()
ip = cluster.program("ip", "iproute2")
shardscope, folder = cluster.setup()
tag = f"shardscope{os.getpid()}"
names = [f"{tag}-{i}" for i in range(3)] + [f"{tag}-bridge"]


def sh(*words):
    return subprocess.run(words, capture_output=True, text=True)


def build():
    for name in names:
        if sh(ip, "netns", "add", name).returncode != 0:
            cluster.skip("this kernel or container gives no network namespaces")
        sh(ip, "-n", name, "link", "set", "lo", "up")
    sh(ip, "-n", names[3], "link", "add", "bridge", "type", "bridge")
    sh(ip, "-n", names[3], "link", "set", "bridge", "up")
    for i in range(3):
        ends = [f"s{os.getpid()}{i}", f"b{os.getpid()}{i}"]
        sh(ip, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        sh(ip, "link", "set", ends[0], "netns", names[i])
        sh(ip, "link", "set", ends[1], "netns", names[3])
        sh(ip, "-n", names[3], "link", "set", ends[1], "master", "bridge")
        sh(ip, "-n", names[3], "link", "set", ends[1], "up")
        sh(ip, "-n", names[i], "addr", "add", ADDRESS[i] + "/24", "dev", ends[0])
        if sh(ip, "-n", names[i], "link", "set", ends[0], "up").returncode != 0:
            cluster.skip("this kernel or container has no bridges")


def inside(i, words):
    return [ip, "netns", "exec", names[i], "unshare", "--uts", "sh", "-c", f"hostname host{i} && exec \"$@\"", "sh", *words]


def rank(r, port, words=(), master=ADDRESS[0], secret=SECRET, local=1, world=2, case=cluster.CASE):
    contract = {"RANK": str(r), "WORLD_SIZE": str(world), "LOCAL_RANK": str(r % local), "LOCAL_WORLD_SIZE": str(local),
                "MASTER_ADDR": master, "MASTER_PORT": str(port)}
    if secret:
        contract["SHARDSCOPE_SECRET"] = secret
    # As few descriptors as the attack that is to be survived.
    run = ["sh", "-c", "ulimit -n 256 && exec \"$@\"", "sh", shardscope, "run", "--json", *case, *words]
    return subprocess.Popen(inside(r // local, run), env={**os.environ, **contract}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def stranger(what, address, port):
    return subprocess.Popen(inside(2, [sys.executable, os.path.abspath(__file__), shardscope, "stranger", what, address, str(port)]),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finished(p, timeout=120):
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
    return subprocess.CompletedProcess([], p.returncode, out, err)


def leader_pid(port):
    """The process that leads at this port: shardscope itself, not its rank program."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) != "shardscope":
                continue
            environment = open(f"/proc/{pid}/environ").read().split("\0")
            if f"MASTER_PORT={port}" in environment and "RANK=0" in environment:
                return int(pid)
        except OSError:
            pass
    return None


def resident(pid):
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def listens(i, address, port):
    text = sh(ip, "netns", "exec", names[i], "cat", "/proc/net/tcp").stdout
    number = int.from_bytes(socket.inet_aton(address), "little")
    return any(f"{number:08X}:{port:04X}" == line.split()[1] and line.split()[3] == "0A" for line in text.splitlines()[1:])


def wildcard_listeners(i):
    text = sh(ip, "netns", "exec", names[i], "cat", "/proc/net/tcp", "/proc/net/tcp6").stdout
    return [line.split()[1] for line in text.splitlines()
            if line.split()[0] != "sl" and line.split()[3] == "0A" and set(line.split()[1].split(":")[0]) == {"0"}]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def attacked_run():
    reference = cluster.alone(shardscope)
    zero = rank(0, PORT)
    cluster.check("rank 0 listens at MASTER_ADDR", until(lambda: listens(0, ADDRESS[0], PORT)))
    cluster.check("and at no other address", wildcard_listeners(0) == [], str(wildcard_listeners(0)))
    pid = leader_pid(PORT)
    before, busy = resident(pid), processor_s(pid)
    hostile = stranger("attack", ADDRESS[0], PORT)
    told = json.loads(hostile.stdout.readline())
    time.sleep(2)  # with all of them open
    grown, busy = resident(pid) - before, processor_s(pid) - busy
    cluster.check(f"a thousand connections, 64 MB without a newline and 17 MB of newlines: it grew by {grown / MB:.1f} MB",
                  grown <= GROWTH and told["held"] == 1000, str(told))
    cluster.check(f"and used {busy:.2f} s of processor time", busy < 3)
    one = rank(1, PORT)
    lines = {}
    watcher = threading.Thread(target=lambda: lines.update(all=all_command_lines()))
    watcher.start()
    done = [finished(zero), finished(one)]
    watcher.join()
    cluster.check_same("with them held open", cluster.document(done[0]), reference, "torchrun", "host0:1, host1:1", "gloo")
    cluster.check("both ranks end with 0", [d.returncode for d in done] == [0, 0], str([(d.returncode, d.stderr) for d in done]))
    hostile.stdin.close()
    hostile.wait()
    keys = {k for line in told["heard"].splitlines() for k in json.loads(line)}
    cluster.check("the stranger heard challenges and nothing else", keys <= {"challenge"}, told["heard"])
    everything = told["heard"] + done[0].stdout + done[0].stderr + done[1].stderr + lines["all"]
    cluster.check("the secret is nowhere: not heard, not printed, in no command line", SECRET not in everything)


def all_command_lines():
    time.sleep(1)
    text = ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text += open(f"/proc/{pid}/cmdline", errors="replace").read()
        except OSError:
            pass
    return text


def a_stranger_leads():
    hostile = stranger("lead", ADDRESS[2], PORT + 1)
    hostile.stdout.readline()
    one = finished(rank(1, PORT + 1, ["--step-timeout", "3s"], master=ADDRESS[2]))
    cluster.check("a stranger is not followed, and the rank says why",
                  one.returncode == 1 and "did not prove that it knows this run's secret" in one.stderr, one.stderr)
    told = json.loads(hostile.stdout.readline())
    keys = {k for line in told["heard"].splitlines() for k in json.loads(line)}
    cluster.check("it was told nothing but a number and a proof", keys <= {"knock", "proof"} and SECRET not in told["heard"],
                  told["heard"])
    hostile.wait()


def another_secret():
    quick = ["--step-timeout", "4s"]
    both = [rank(0, PORT + 2, quick), rank(1, PORT + 2, quick, secret=secrets.token_hex(32))]
    done = [finished(p) for p in both]
    cluster.check("a rank with another secret is missing, and the table says that somebody had another one",
                  done[0].returncode == 2 and "rank 1 of 2 is missing" in done[0].stderr
                  and "do not know this run's secret" in done[0].stderr, done[0].stderr)
    cluster.check("and says so itself", done[1].returncode == 1 and "SHARDSCOPE_SECRET" in done[1].stderr, done[1].stderr)


def no_secret():
    done = [finished(p) for p in [rank(r, PORT + 3, secret="") for r in range(2)]]
    cluster.check("several hosts without a secret: exit 2 and the command that makes one, on both",
                  all(d.returncode == 2 and "openssl rand -hex 32" in d.stderr for d in done), str([(d.returncode, d.stderr) for d in done]))


def one_host():
    # All ranks on one host, reached by its name on the network.
    longer = [w if w != "3" else "50" for w in cluster.CASE]
    both = [rank(0, PORT + 4, ["--collectives", "gloo"], secret="", local=2, case=longer)]
    cluster.check("ranks of one host meet on the loopback address", until(lambda: listens(0, "127.0.0.1", PORT + 4)))
    both.append(rank(1, PORT + 4, ["--collectives", "gloo"], secret="", local=2, case=longer))
    open_to_all = set()
    while both[0].poll() is None:
        open_to_all |= set(wildcard_listeners(0))
        time.sleep(0.05)
    done = [finished(p) for p in both]
    cluster.check("and the run is ok without a secret of the user's", cluster.document(done[0])["status"] == "ok",
                  str([(d.returncode, d.stderr) for d in done]))
    cluster.check("nothing of it listened at every address", not open_to_all, str(open_to_all))


try:
    build()
    attacked_run()
    a_stranger_leads()
    another_secret()
    no_secret()
    one_host()
    cluster.check("no rank is left", cluster.no_ranks_left())
finally:
    for name in names:
        sh(ip, "netns", "delete", name)
cluster.finish()
