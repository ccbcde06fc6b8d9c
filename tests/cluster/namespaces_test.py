"""Two hosts on one machine: network namespaces with host names of their own, joined by a veth pair.

usage: namespaces_test.py SHARDSCOPE [PYTHON], one with PyTorch
"""
import os
import secrets
import signal
import subprocess
import sys
import time

import cluster
from processes import processor_s

cluster.need_root()
ip = cluster.program("ip", "iproute2")
shardscope, folder = cluster.setup()
tag = f"shardscope{os.getpid()}"
os.environ["SHARDSCOPE_SECRET"] = secrets.token_hex(32)  # of the ranks of two hosts
hosts = [f"{tag}-{i}" for i in range(2)]
links = [f"ss{os.getpid()}a", f"ss{os.getpid()}b"]
address = ["10.213.77.1", "10.213.77.2"]


def sh(*words):
    return subprocess.run(words, capture_output=True, text=True)


def inside(i, words):
    # `ip netns exec` gives a mount namespace of its own.
    setup = f"mount --bind {folder}/hosts /etc/hosts && hostname host{i} && exec \"$@\""
    return [ip, "netns", "exec", hosts[i], "unshare", "--uts", "sh", "-c", setup, "sh", *words]


def build():
    with open(folder + "/hosts", "w") as f:
        f.write(f"127.0.0.1 localhost\n{address[0]} host0\n{address[1]} host1\n")
    for i in range(2):
        if sh(ip, "netns", "add", hosts[i]).returncode != 0:
            cluster.skip("this kernel or container gives no network namespaces")
    sh(ip, "link", "add", links[0], "type", "veth", "peer", "name", links[1])
    for i in range(2):
        sh(ip, "link", "set", links[i], "netns", hosts[i])
        sh(ip, "-n", hosts[i], "addr", "add", address[i] + "/24", "dev", links[i])
        sh(ip, "-n", hosts[i], "link", "set", links[i], "up")
        sh(ip, "-n", hosts[i], "link", "set", "lo", "up")


def tear_down():
    for host in hosts:
        sh(ip, "netns", "delete", host)


def sent(i):
    out = sh(ip, "netns", "exec", hosts[i], "cat", f"/sys/class/net/{links[i]}/statistics/tx_bytes").stdout
    return int(out or 0)


def start(rank, world, words, master=address[0], local=2, port="29711"):
    contract = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % local),
                "LOCAL_WORLD_SIZE": str(local), "MASTER_ADDR": master, "MASTER_PORT": port}
    return subprocess.Popen(inside(rank // local, words), env={**os.environ, **contract}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def all_of(processes, timeout=120):
    done = []
    for p in processes:
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
        done.append(subprocess.CompletedProcess([], p.returncode, out, err))
    return done


def two_hosts():
    case = ["run", "--json", *cluster.CASE, "--world", "4"]
    reference = cluster.alone(shardscope, ["--world", "4"])
    before = sent(0)
    done = all_of([start(r, 4, [shardscope, *case]) for r in range(4)])
    result = cluster.document(done[0])
    cluster.check_same("two hosts, two ranks each", result, reference, "torchrun", "host0:2, host1:2", "gloo")
    crossed = sent(0) - before
    least = result.get("communicated_bytes", 0) * 7 // 4  # 7 steps; at least a quarter of a ring crosses from host0
    cluster.check(f"the bytes crossed the link: {crossed}", crossed > least > 0, f"at least {least} expected")
    cluster.check("the others print nothing and end as rank 0", all(d.returncode == 0 and d.stdout == "" for d in done[1:]),
                  str([(d.returncode, d.stdout, d.stderr) for d in done[1:]]))


def errors():
    done = all_of([start(r, 4, [shardscope, "run", "--collectives", "local", *cluster.CASE]) for r in range(4)])
    cluster.check("shared memory across hosts is refused on every rank",
                  all(d.returncode == 2 and "--collectives gloo" in d.stderr for d in done), str([d.stderr for d in done]))
    # Every node a world of its own: both say local rank 0 of 1 and rank 0.
    quick = [shardscope, "run", "--step-timeout", "3s", *cluster.CASE]
    done = all_of([start(0, 2, quick, master="127.0.0.1", local=1), start(1, 2, quick, master="127.0.0.1", local=1)])
    cluster.check("a loopback master on two hosts is an error within the time limit, on both",
                  all(d.returncode in (1, 2) for d in done) and "rank 1 of 2 is missing" in done[0].stderr
                  and "127.0.0.1:29711" in done[1].stderr, str([(d.returncode, d.stderr) for d in done]))
    done = all_of([start(r, 4, [shardscope, "run", *[str(32 + r // 2) if w == "32" else w for w in cluster.CASE]]) for r in range(4)])
    cluster.check("other settings on the second host: the table on every rank",
                  all(d.returncode == 2 and "rank 2 has other settings than rank 0 (seq 33 against 32)" in d.stderr
                      and d.stderr.count("host1") == 2 for d in done), str([d.stderr for d in done]))


def a_rank_dies():
    case = [w if w != "3" else "100000" for w in cluster.CASE]
    slow = [shardscope, "run", "--json", *case, "--world", "4"]
    processes = [start(r, 4, slow) for r in range(4)]
    ranks = lambda: [int(p) for p in os.listdir("/proc") if p.isdigit() and runs(p)]
    end = time.monotonic() + 90
    victim = None
    while victim is None and time.monotonic() < end:
        time.sleep(0.1)
        # A start takes a third of this processor time: by then it is in its steps.
        victim = next((p for p in ranks() if environment(p).get("RANK") == "3" and processor_s(p) > 1.5), None)
    cluster.check("the ranks of the other host are in their steps", victim is not None)
    if victim:
        os.kill(victim, signal.SIGKILL)
    done = all_of(processes)
    result = cluster.document(done[0])
    cluster.check("a rank killed on the other host is the case's reason",
                  result["status"] == "crashed" and "rank 3 was killed by SIGKILL" in result["reason"], result["reason"])
    cluster.check("every process ends with 1", [d.returncode for d in done] == [1] * 4, str([d.returncode for d in done]))


def runs(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[0] == cluster.rank_program.encode()
    except OSError:
        return False


def environment(pid):
    try:
        pairs = open(f"/proc/{pid}/environ").read().split("\0")
    except OSError:
        return {}
    return dict(p.split("=", 1) for p in pairs if "=" in p)


def torchrun_on_both():
    torchrun, why_not = cluster.torchrun(sys.argv[2] if len(sys.argv) > 2 else "")
    if why_not:
        print(f"--    torchrun on two hosts: no whole PyTorch ({why_not}); not run")
        return
    agent = lambda i: [*torchrun, "--local-addr", address[i]]  # each agent tells its workers its own address
    words = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", tag,
             "--rdzv-endpoint", address[0] + ":29712", "--no-python", shardscope, "run", "--json", *cluster.CASE]
    start = [subprocess.Popen(inside(i, agent(i) + words), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for i in range(2)]
    done = all_of(start)
    first = done[0] if done[0].stdout else done[1]  # the agents choose which host has rank 0
    result = cluster.document(first)
    hosts = "host0:1, host1:1" if first is done[0] else "host1:1, host0:1"
    cluster.check_same("torchrun on two hosts", result, cluster.alone(shardscope), "torchrun", hosts, "gloo")


try:
    build()
    two_hosts()
    errors()
    a_rank_dies()
    torchrun_on_both()
    cluster.check("no rank is left", cluster.no_ranks_left())
finally:
    tear_down()
cluster.finish()
