"""usage: mpirun_test.py SHARDSCOPE PYTHON"""
import os
import sys

import cluster

mpirun = cluster.program("mpirun", "openmpi-bin")
shardscope, folder = cluster.setup()
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
launch = [mpirun, "-np", "2", "--bind-to", "none"]

reference = cluster.alone(shardscope)
host = os.uname().nodename
done = cluster.call(launch + [shardscope, "run", "--json", *cluster.CASE])
cluster.check_same("mpirun", cluster.document(done), reference, "mpi", f"{host}:2", "local")
done = cluster.call(launch + [shardscope, "run", "--json", "--collectives", "gloo", *cluster.CASE])
cluster.check_same("mpirun, gloo", cluster.document(done), reference, "mpi", f"{host}:2", "gloo")

cluster.check_pytorch("mpirun", launch, shardscope, reference, sys.argv[2], f"{host}:2")

differ = cluster.per_rank(folder, "OMPI_COMM_WORLD_RANK", f"{shardscope} run --seq $((32 + OMPI_COMM_WORLD_RANK))")
cluster.call(launch + differ)
cluster.check_table("ranks with other settings", folder, 2, "rank 1 has other settings than rank 0 (seq 33 against 32)")

done = cluster.call(launch + [shardscope, "run", "--json", "--memory-budget", "200KiB", *cluster.CASE])
cluster.check("out of memory is the case's row, exit 1",
              done.returncode == 1 and cluster.document(done)["status"] == "oom", done.stdout + done.stderr)

spec = os.path.join(folder, "s.yaml")
open(spec, "w").write(cluster.SPEC)
done = cluster.call([shardscope, "sweep", spec, "-o", folder + "/out", "--launcher", "mpi", "--strict"])
cluster.check("a sweep, one mpirun for each trial", done.returncode == 0 and "4 of 4 cases" in done.stderr, done.stderr)
cluster.check("no rank is left", cluster.no_ranks_left())
cluster.finish()
