"""Gloo between the ranks of one host asks no name server: where none answers, every question would take ten seconds.

usage: dns_test.py SHARDSCOPE   (with `inside` as a last word: in a mount namespace of its own)
"""
import os
import socket
import subprocess
import sys
import threading

import cluster

cluster.need_root()


def outside():
    apart = [cluster.program("unshare", "util-linux"), "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
        cluster.skip("this kernel or container gives no mount namespaces")
    sys.exit(subprocess.run([*apart, sys.executable, *sys.argv, "inside"]).returncode)


def replace(path, text, folder):
    other = os.path.join(folder, os.path.basename(path))
    with open(other, "w") as f:
        f.write(text)
    if subprocess.run(["mount", "--bind", other, path], capture_output=True).returncode != 0:
        cluster.skip("no right to mount")


def inside():
    shardscope, folder = cluster.setup()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        server.bind(("127.0.0.1", 53))
    except OSError:
        cluster.skip("a name server runs on this host")
    replace("/etc/resolv.conf", "nameserver 127.0.0.1\n", folder)
    replace("/etc/hosts", "", folder)
    questions = []
    threading.Thread(target=lambda: [questions.append(server.recv(512)) for _ in range(1000)], daemon=True).start()
    subprocess.run(["getent", "hosts", "127.0.0.9"], env={**os.environ, "RES_OPTIONS": "timeout:1 attempts:1"})
    cluster.check("this name server is the one that is asked", len(questions) > 0)
    questions.clear()
    done = cluster.call([shardscope, "run", "--json", "--collectives", "gloo", *cluster.CASE])
    cluster.check("a run over Gloo is ok", cluster.document(done)["status"] == "ok", done.stdout + done.stderr)
    cluster.check("and asks no name server", len(questions) == 0, str(questions[:3]))
    cluster.finish()


inside() if sys.argv[-1] == "inside" else outside()
