"""Start-up: --help within 20 ms, `run --json` of a tiny model within 3 s, both ranks included. Best of a few: noise only adds."""
import time

from command import Checks, call

check = Checks()


def best_of(n, *arguments):
    best = float("inf")
    for _ in range(n):
        begin = time.perf_counter()
        done = call(*arguments)
        best = min(best, time.perf_counter() - begin)
        check(done.returncode == 0, f"{arguments}: exit {done.returncode} {done.stderr}")
    return best


help_s = best_of(10, "--help")
run_s = best_of(3, "run", "--set", "layers=2,dim=64,heads=2,kv_heads=2,ffn=96,vocab=128", "--seq", "16", "--batch", "2", "--steps", "8",
                "--warmup", "0", "--json")
print(f"--help {help_s * 1e3:.1f} ms, run --json {run_s:.2f} s")
check(help_s <= 0.020, f"--help took {help_s * 1e3:.1f} ms")
check(run_s <= 3, f"run took {run_s:.2f} s")
check.done()
