"""usage: torchrun_test.py SHARDSCOPE PYTHON, one with PyTorch"""
import os
import sys

import cluster
from cluster import whole_torch

# The launcher itself needs the whole of PyTorch, which a CPU build of this program does not.
torchrun, why_not = cluster.torchrun(sys.argv[2] if len(sys.argv) > 2 else "")
if why_not:
    whole_torch.skip(sys.argv[2], why_not)
shardscope, folder = cluster.setup()
launch = [*torchrun, "--standalone", "--nproc-per-node", "2", "--no-python"]

reference = cluster.alone(shardscope)
host = os.uname().nodename
done = cluster.call(launch + [shardscope, "run", "--json", *cluster.CASE])
cluster.check_same("torchrun", cluster.document(done), reference, "torchrun", f"{host}:2", "local")
done = cluster.call(launch + [shardscope, "run", "--json", "--collectives", "gloo", *cluster.CASE])
cluster.check_same("torchrun, gloo", cluster.document(done), reference, "torchrun", f"{host}:2", "gloo")

cluster.check_pytorch("torchrun", launch, shardscope, reference, sys.argv[2], f"{host}:2")

differ = cluster.per_rank(folder, "RANK", f"{shardscope} run --seq $((32 + RANK))")
cluster.call(launch + differ)
cluster.check_table("ranks with other settings", folder, 2, "rank 1 has other settings than rank 0 (seq 33 against 32)")

done = cluster.call(launch + [shardscope, "run", "--world", "4", *cluster.CASE])
cluster.check("a case of 4 ranks under 2 is refused with the remedy", "give --world 2" in done.stderr, done.stderr)
cluster.check("no rank is left", cluster.no_ranks_left())
cluster.finish()
