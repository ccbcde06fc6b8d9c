"""A Slurm of this test's own: munged, slurmctld and two slurmd on this machine, in a temporary folder, stopped at the end.

usage: slurm_test.py SHARDSCOPE REPOSITORY PYTHON
"""
import os
import signal
import socket
import subprocess
import sys
import time

import cluster

cluster.need_root()
programs = {name: cluster.program(name, package) for name, package in
            (("munged", "munge"), ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"),
             ("sbatch", "slurm-client"), ("scontrol", "slurm-client"))}
shardscope, folder = cluster.setup()
repository = sys.argv[2]
host = os.uname().nodename
daemons = []


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def start(name, *words):
    log = open(os.path.join(folder, f"{name}{len(daemons)}.log"), "w")
    daemons.append(subprocess.Popen([programs[name], *words], stdout=log, stderr=log, start_new_session=True))


def configure():
    ctl, d = free_port(), [free_port(), free_port()]
    cores = os.cpu_count()
    with open(os.path.join(folder, "slurm.conf"), "w") as f:
        f.write(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctl}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=3
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={d[0]} CPUs={cores}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={d[1]} CPUs={cores}
PartitionName=all Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
""")
    with open(os.path.join(folder, "munge.key"), "wb") as f:
        f.write(os.urandom(128))
    os.chmod(os.path.join(folder, "munge.key"), 0o400)
    os.chmod(folder, 0o755)
    os.mkdir(os.path.join(folder, "state"))
    os.environ.update(SLURM_CONF=os.path.join(folder, "slurm.conf"))


def start_all():
    start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
          f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed")
    wait_for(lambda: os.path.exists(f"{folder}/munge.socket"), "munged")
    start("slurmctld", "-D")
    for node in ("n0", "n1"):
        start("slurmd", "-D", "-N", node)
    wait_for(lambda: cluster.call(["sinfo", "-h", "-t", "idle", "-o", "%D"]).stdout.strip() == "2", "two idle nodes")


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            logs = "".join(open(os.path.join(folder, n)).read()[-1500:] for n in os.listdir(folder) if n.endswith(".log"))
            print(logs)
            cluster.check(f"{what} within {seconds} s", False)
            raise SystemExit(1)
        time.sleep(0.2)


def stop_all():
    for p in reversed(daemons):
        p.send_signal(signal.SIGTERM)
    for p in reversed(daemons):
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)


def ranks_of_a_step():
    reference = cluster.alone(shardscope)
    os.environ.pop("MASTER_ADDR", None)
    done = cluster.call(["srun", "-N1", "-n2", shardscope, "run", "--json", *cluster.CASE])
    cluster.check_same("srun, one node", cluster.document(done), reference, "slurm", "n0:2", "local")
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # the names of these nodes are no hosts
    done = cluster.call(["srun", "-N2", "-n2", shardscope, "run", "--json", *cluster.CASE])
    cluster.check_same("srun, two nodes", cluster.document(done), reference, "slurm", "n0:1, n1:1", "gloo")
    cluster.check_pytorch("srun, one node", ["srun", "-N1", "-n2"], shardscope, reference, sys.argv[3], "n0:2")
    cluster.check_pytorch("srun, two nodes", ["srun", "-N2", "-n2"], shardscope, reference, sys.argv[3], "n0:1, n1:1")
    differ = cluster.per_rank(folder, "SLURM_PROCID", f"{shardscope} run --seq $((32 + SLURM_PROCID))")
    cluster.call(["srun", "-N1", "-n2", "--kill-on-bad-exit=0", *differ])
    cluster.check_table("ranks with other settings", folder, 2, "rank 1 has other settings than rank 0 (seq 33 against 32)")


def sweeps():
    spec = os.path.join(folder, "s.yaml")
    with open(spec, "w") as f:
        f.write(cluster.SPEC)
    begin = time.monotonic()
    done = cluster.call([shardscope, "sweep", spec, "-o", folder + "/one", "--launcher", "slurm", "--strict"])
    cluster.check(f"a sweep, one srun for each trial: {time.monotonic() - begin:.1f} s for 4 cases",
                  done.returncode == 0 and "4 of 4 cases" in done.stderr, done.stderr)
    begin = time.monotonic()
    done = cluster.call([shardscope, "sweep", spec, "-o", folder + "/two", "--launcher", "slurm", "--nodes", "2", "--strict"])
    cluster.check(f"each trial a step over two nodes: {time.monotonic() - begin:.1f} s for 4 cases",
                  done.returncode == 0 and "4 of 4 cases" in done.stderr, done.stderr)
    done = cluster.call(["python3", "-c", "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(db.execute("
                         "\"SELECT count(DISTINCT case_index) FROM environment WHERE name = 'hosts' AND value = 'n0:1, n1:1'\""
                         ").fetchone()[0])", folder + "/two/results.db"])
    cluster.check("the results of both nodes' ranks are on the launching node", done.stdout.strip() == "4", done.stdout + done.stderr)


def batch_files():
    spec = os.path.join(folder, "s.yaml")
    for name, nodes in (("sweep.sbatch", 1), ("sweep_nodes.sbatch", 2)):
        out = os.path.join(folder, name)
        done = cluster.call(["sbatch", "--wait", f"--nodes={nodes}", "-o", f"{folder}/{name}.log",
                             os.path.join(repository, "scripts", "slurm", name), spec, out, "--strict"],
                            env={**os.environ, "SHARDSCOPE": shardscope})
        log = open(f"{folder}/{name}.log").read() if os.path.exists(f"{folder}/{name}.log") else ""
        cluster.check(f"sbatch {name}", done.returncode == 0 and "4 of 4 cases" in log, done.stdout + done.stderr + log)


configure()
try:
    start_all()
    ranks_of_a_step()
    sweeps()
    batch_files()
    cluster.check("no rank is left", cluster.no_ranks_left())
finally:
    stop_all()
cluster.finish()
