#!/usr/bin/env python3
"""bench/run with programs that are not benches: what is written, what the gate says, how it ends. The arms of side_by_side.py."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench/run"

sys.path.insert(0, str(RUN.parent))
import side_by_side  # noqa: E402
import step_benches  # noqa: E402

# Answers `run --json` with a step whose copies move 1 byte per COPY_NS nanoseconds; the virtual world fails while VIRTUAL_FAILS.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
if "virtual" in sys.argv and "VIRTUAL_FAILS" in os.environ: sys.exit("no such world")
ns = int(os.environ.get("COPY_NS", "1"))
print(json.dumps({"copy_ns": 1000 * ns, "unit_metrics": [{"all_gather_bytes": 600, "reduce_scatter_bytes": 400}]}))
"""
# A tree of one revision, with changes while CHANGED is set.
GIT = """#!/bin/sh
case "$3" in
  rev-parse) echo "1234567" ;;
  status) echo "$CHANGED" ;;
esac
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class BenchRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="shardscope-bench-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = executable(self.folder / "program", PROGRAM)
        (self.folder / "git").mkdir()
        executable(self.folder / "git/git", GIT)

    def run_it(self, *arguments, copy_ns=1, name="result", **environment):
        return subprocess.run([sys.executable, RUN, "--short", "--only", "copies", "--program", self.program, "-o", self.folder / name, *arguments],
                              capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.folder / 'git'}:{os.environ['PATH']}", "COPY_NS": str(copy_ns), **environment})

    def test_writes_a_table_and_a_result_with_the_machine_and_the_command(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.folder / "result.json").read_text())
        self.assertEqual([(r["name"], r["value"], r["low"], r["high"]) for r in result["rows"]], [("pack and unpack: small", 1, 1, 1), ("pack and unpack: medium", 1, 1, 1)])
        self.assertEqual(result["command"], "bench/run --short --only copies")
        self.assertGreater(result["machine"]["cores"], 0)
        table = (self.folder / "result.md").read_text()
        self.assertIn("| pack and unpack: small | 1 | 1 to 1 | GB/s of gathered and reduced bytes |", table)
        self.assertNotIn(str(self.folder), table)

    def test_the_gate_fails_for_what_is_surely_worse_and_for_nothing_else(self):
        self.run_it(name="stored")
        stored = self.folder / "stored.json"
        self.assertEqual(self.run_it("--gate", stored).returncode, 0)
        worse = self.run_it("--gate", stored, copy_ns=2)
        self.assertEqual(worse.returncode, 1)
        self.assertIn("surely worse: pack and unpack: small: 1 -> 0.5 GB/s", worse.stdout)
        self.assertEqual(self.run_it("--gate", stored, "--limit", "2", copy_ns=2).returncode, 0)
        self.run_it(name="slow", copy_ns=2)
        self.assertEqual(self.run_it("--gate", self.folder / "slow.json").returncode, 0)   # better is no failure

    def test_another_machine_is_refused(self):
        self.run_it(name="stored")
        stored = self.folder / "stored.json"
        result = json.loads(stored.read_text())
        result["machine"]["cpu"] = "another"
        stored.write_text(json.dumps(result))
        done = self.run_it("--gate", stored)
        self.assertEqual(done.returncode, 2)
        self.assertIn("differs in cpu", done.stderr)

    def test_a_bench_that_fails_costs_its_own_rows_and_the_next_run_goes_on(self):
        partial = self.folder / "result.partial.json"
        done = self.run_it("--only", "copies,virtual", VIRTUAL_FAILS="1")
        self.assertEqual(done.returncode, 3)
        self.assertIn("without the rows of virtual", done.stderr)
        names = lambda: [r["name"].split(":")[0] for r in json.loads((self.folder / "result.json").read_text())["rows"]]   # noqa: E731
        self.assertEqual(names(), ["pack and unpack", "pack and unpack"])
        self.assertTrue(partial.exists())
        again = self.run_it("--only", "copies,virtual", copy_ns=2)   # what is kept is not measured again
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("copies: kept from before", again.stderr)
        self.assertEqual(names(), ["pack and unpack", "pack and unpack", "virtual world"])
        self.assertEqual(json.loads((self.folder / "result.json").read_text())["rows"][0]["value"], 1)
        self.assertFalse(partial.exists())

    def test_rows_that_were_kept_are_left_where_asked(self):
        self.run_it("--only", "copies,virtual", VIRTUAL_FAILS="1")
        self.run_it("--only", "copies,virtual", "--fresh", copy_ns=2)
        self.assertEqual(json.loads((self.folder / "result.json").read_text())["rows"][0]["value"], 0.5)

    def test_rows_of_other_code_are_not_kept(self):
        def value(*arguments, **environment):
            self.run_it("--only", "copies,virtual", "--fresh", VIRTUAL_FAILS="1", **environment)
            done = self.run_it("--only", "copies,virtual", *arguments, copy_ns=2, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads((self.folder / "result.json").read_text())["rows"][0]["value"]
        self.assertEqual(value(), 1)
        self.assertEqual(value(CHANGED=" M fsdp/core/types.h"), 0.5)   # there, the same revision may be other code
        self.assertEqual(value("--build", self.folder / "another"), 0.5)

    def test_what_is_not_there_is_told(self):
        self.assertEqual(self.run_it("--only", "nothing").returncode, 2)
        self.assertEqual(self.run_it("--gate", self.folder / "absent.json").returncode, 2)
        self.assertEqual(self.run_it("--program", self.folder / "absent").returncode, 3)


class Estimates(unittest.TestCase):
    def test_the_shortest_step_waits_for_the_first_gathers_and_the_last_reductions(self):
        def unit(index, which, gathers, reductions, compute):
            return {"unit_index": index, "pass": which, "all_gathers": gathers, "reduce_scatters": reductions, "all_gather_bytes": 2000 * gathers,
                    "reduce_scatter_bytes": 2000 * reductions, "all_gather_ns": 0, "reduce_scatter_ns": 0, "compute_ns": compute}
        case = {"compute_ns": 17000, "overlapped_ns": 0, "optimizer_ns": 1000, "copy_ns": 500,
                "unit_metrics": [unit(0, "forward", 1, 0, 100), unit(1, "forward", 1, 0, 3000), unit(2, "forward", 1, 0, 3000),
                                 unit(0, "backward", 0, 1, 900), unit(1, "backward", 1, 1, 5000), unit(2, "backward", 0, 1, 5000)]}
        # A collective of 2000 bytes holds the wire for 1000 ns: two before the first block, two behind it.
        self.assertEqual(step_benches.shortest_step(case, (0, 1e9)), 18500 + 2000 + 2000)
        # With a latency of 9 us the network is the longer part: three gathers, one more in backward, three reductions; then the optimizer.
        self.assertEqual(step_benches.shortest_step(case, (9000, 1e9)), 7 * 10000 + 1000)

    def test_bytes_of_several_collectives_are_their_sum_and_each_pays_the_latency(self):
        self.assertEqual(step_benches.wire_ns((9000, 1e9), 4000, 2), 2 * 9000 + 2000)
        def unit(index, which, gathers, reductions, gathered, reduced, compute):
            return {"unit_index": index, "pass": which, "all_gathers": gathers, "reduce_scatters": reductions, "all_gather_bytes": gathered,
                    "reduce_scatter_bytes": reduced, "all_gather_ns": 0, "reduce_scatter_ns": 0, "compute_ns": compute}
        # Block 1 is gathered twice, in backward eight times, and the root reduced twice, 2000 bytes each time.
        case = {"compute_ns": 17000, "overlapped_ns": 0, "optimizer_ns": 1000, "copy_ns": 500,
                "unit_metrics": [unit(0, "forward", 1, 0, 2000, 0, 100), unit(1, "forward", 2, 0, 4000, 0, 3000),
                                 unit(0, "backward", 0, 2, 0, 4000, 900), unit(1, "backward", 8, 1, 16000, 2000, 5000)]}
        self.assertEqual(step_benches.shortest_step(case, (0, 1e9)), 18500 + 3000 + 3000)
        self.assertEqual(step_benches.shortest_step(case, (100, 1e9)), 18500 + 3300 + 3300)
        self.assertEqual(step_benches.shortest_step(case, (9000, 1e9)), 14 * 10000 + 1000)

    def test_the_location_of_pairs_is_hodges_and_lehmanns(self):
        value, low, high = step_benches.located([1, 2, 10])
        self.assertEqual(value, 3.75)   # of 1, 1.5, 2, 5.5, 6, 10
        self.assertEqual((low, high), (1, 10))
        value, low, high = step_benches.located([x / 10 for x in range(-30, 31)])
        self.assertAlmostEqual(value, 0)
        self.assertAlmostEqual(low, -high)
        self.assertTrue(0.3 < high < 0.7)


class Peers(unittest.TestCase):
    def peer(self, body, answer_s, **options):
        peer = side_by_side.Peer([sys.executable, "-c", body], answer_s, **options)
        self.addCleanup(peer.process.stdout.close)
        self.addCleanup(peer.errors.close)
        self.addCleanup(peer.process.stdin.close)
        return peer

    def test_each_answer_has_its_own_time(self):
        calls = []

        class Timer:
            def __init__(self, seconds, _):
                self.seconds = seconds

            def start(self):
                calls.append(("start", self.seconds))

            def cancel(self):
                calls.append(("cancel", self.seconds))
        peer = self.peer("import sys\nprint('{}', flush=True)\nfor _ in sys.stdin: print('{\"a\": 1}', flush=True)", answer_s=60, timer=Timer)
        self.assertEqual(peer.answer(), {})
        for _ in range(3):
            self.assertEqual(peer.run(), {"a": 1})
        peer.end()
        self.assertEqual(calls, [("start", 60), ("cancel", 60)] * 4)

    def test_one_that_ends_without_an_answer_is_said_with_its_code(self):
        peer = self.peer("import sys\nsys.exit(7)", answer_s=60)
        with self.assertRaisesRegex(SystemExit, "exit 7 of: "):
            peer.answer()

    def test_one_that_does_not_answer_in_time_is_ended_and_its_ranks_with_it(self):
        rank = "import time; time.sleep(60)"
        peer = self.peer(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '{rank}'])", answer_s=0.5)
        with self.assertRaisesRegex(SystemExit, "no answer within 0.5 s"):   # not before the rank, which holds the output, has ended
            peer.answer()
        self.assertEqual(peer.process.wait(timeout=10), -9)

    def test_a_peak_is_kept_for_the_program_that_it_was_measured_with(self):
        with tempfile.TemporaryDirectory() as folder:
            script, peaks, runs = pathlib.Path(folder) / "peer.py", side_by_side.PEAKS, pathlib.Path(folder) / "runs"
            side_by_side.PEAKS = pathlib.Path(folder) / "peaks.json"
            self.addCleanup(setattr, side_by_side, "PEAKS", peaks)
            body = f"import json\nopen({str(runs)!r}, 'a').write('x')\nprint(json.dumps(dict(peak_bytes=%d)))\n"
            script.write_text(body % 1)
            peak = lambda: side_by_side.peer_peak([sys.executable, str(script), "--wrap", "root", "--steps", "3"], "2.11.0")   # noqa: E731
            self.assertEqual([peak(), peak()], [1, 1])
            script.write_text(body % 2)
            self.assertEqual([peak(), peak()], [2, 2])
            self.assertEqual(runs.read_text(), "xx")
            self.assertEqual(list(json.loads(side_by_side.PEAKS.read_text()).values()), [2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
