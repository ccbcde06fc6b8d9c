#!/usr/bin/env python3
"""bench/run with programs that are not benches: what is written, what the gate says, how it ends."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench/run"

# Answers `run --json` with a step whose copies move 1 byte per COPY_NS nanoseconds.
PROGRAM = """#!/usr/bin/env python3
import json, os
ns = int(os.environ.get("COPY_NS", "1"))
print(json.dumps({"copy_ns": 1000 * ns, "unit_metrics": [{"all_gather_bytes": 600, "reduce_scatter_bytes": 400}]}))
"""


class BenchRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="shardscope-bench-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *arguments, copy_ns=1, name="result"):
        return subprocess.run([sys.executable, RUN, "--short", "--only", "copies", "--program", self.program, "-o", self.folder / name, *arguments],
                              capture_output=True, text=True, env={**os.environ, "COPY_NS": str(copy_ns)})

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

    def test_what_is_not_there_is_told(self):
        self.assertEqual(self.run_it("--only", "nothing").returncode, 2)
        self.assertEqual(self.run_it("--gate", self.folder / "absent.json").returncode, 2)
        self.assertEqual(self.run_it("--program", self.folder / "absent").returncode, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
