"""What a user of `sweep` and `report` relies on, over a reduced quickstart: partitions that sum, an out-of-memory row with its
cause, resuming after an end and after a kill, CSV, report.

  quickstart_test.py PROGRAM      PROGRAM: build/bin/shardscope
"""
import csv
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

PROGRAM = ""
SPEC = pathlib.Path(__file__).with_name("reduced.yaml")
CASES = 6
CLASSES = ["compute_ns", "overlapped_ns", "exposed_all_gather_forward_ns", "exposed_all_gather_backward_ns", "exposed_reduce_scatter_ns",
           "exposed_other_ns", "copy_ns", "host_ns", "memory_wait_ns", "optimizer_ns", "idle_ns"]
PATIENCE = 120   # seconds for anything that must happen at last


def shardscope(*arguments, expect=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != expect:
        raise AssertionError(f"exit {done.returncode}, not {expect}, of shardscope {arguments}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def query(folder, sql):
    with sqlite3.connect(f"file:{pathlib.Path(folder, 'results.db')}?mode=ro", uri=True, timeout=10) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql).fetchall()


def finished(folder):
    """case -> when it ran; {} while there is no database yet."""
    try:
        return {r["id"]: (r["started_at"], r["finished_at"]) for r in query(folder, "SELECT id, started_at, finished_at FROM cases WHERE finished_at > 0")}
    except sqlite3.OperationalError:
        return {}


def marked_processes(mark):
    """Processes that carry the mark in their environment."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and "Z" not in (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def eventually(condition):
    """Polls until the condition holds; a test that waits for another process has no other way."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Quickstart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="shardscope-quickstart."))
        cls.done = cls.scratch / "done"
        shardscope("sweep", SPEC, "-o", cls.done)
        shardscope("report", cls.done)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def csv_rows(self):
        with open(self.done / "results.csv", newline="", encoding="utf-8") as f:
            return list(csv.DictReader(f))

    def test_every_case_is_a_row(self):
        rows = query(self.done, "SELECT id, status, reason FROM cases")
        self.assertEqual(len(rows), CASES)
        for r in rows:
            self.assertIn(r["status"], ("ok", "near_oom", "oom"), dict(r))

    def test_the_partition_of_every_case_sums_to_its_step(self):
        total = " + ".join(CLASSES)
        rows = query(self.done, f"SELECT id, traced_step_ns, {total} AS total FROM cases WHERE status IN ('ok', 'near_oom')")
        self.assertEqual(len(rows), 4)
        for r in rows:
            self.assertGreater(r["traced_step_ns"], 0, r["id"])
            self.assertEqual(r["total"], r["traced_step_ns"], r["id"])

    def test_the_partition_of_every_rank_and_step_sums_to_that_step(self):
        total = " + ".join(CLASSES)
        rows = query(self.done, f"SELECT length_ns, {total} AS total FROM steps")
        self.assertEqual(len(rows), 4 * 2 * 2)   # cases, ranks, steps
        for r in rows:
            self.assertEqual(r["total"], r["length_ns"])

    def test_csv_has_the_same_cases_and_sums(self):
        rows = self.csv_rows()
        self.assertEqual(len(rows), CASES)
        self.assertEqual({r["case"] for r in rows}, {r["id"] for r in query(self.done, "SELECT id FROM cases")})
        self.assertEqual(list(rows[0])[:5], ["case", "status", "reason", "wrap", "backward_prefetch"])
        for r in rows:
            if r["status"] in ("ok", "near_oom"):
                self.assertEqual(sum(int(r[c]) for c in CLASSES), int(r["traced_step_ns"]), r["case"])
            else:
                self.assertEqual(r["traced_step_ns"], "", r["case"])

    def test_too_coarse_a_wrapping_is_out_of_memory_with_its_cause(self):
        rows = [r for r in self.csv_rows() if r["status"] == "oom"]
        self.assertEqual({r["wrap"] for r in rows}, {"root"})
        for r in rows:
            unit, step_pass, category = r["peak_cause"].split(", ")
            self.assertEqual(unit, "root")
            self.assertIn(step_pass, ("forward", "backward", "optimizer"))
            self.assertTrue(category)
            self.assertTrue(r["reason"])

    def test_emulated_wires_are_marked(self):
        self.assertEqual({r["emulated"] for r in self.csv_rows() if r["status"] == "ok"}, {"true"})

    def test_the_report_is_one_file_without_a_network(self):
        page = (self.done / "report.html").read_text(encoding="utf-8")
        self.assertGreater(len(page), 10_000)
        for outside in ('src="http', "src='http", '<link rel="stylesheet" href', "@import"):
            self.assertNotIn(outside, page)

    def test_traces_and_logs_are_there(self):
        self.assertEqual(len(list((self.done / "traces").glob("*.json.gz"))), 4)

    def test_a_second_sweep_measures_nothing_again(self):
        before = finished(self.done)
        shardscope("sweep", SPEC, "-o", self.done)
        self.assertEqual(finished(self.done), before)

    def test_a_changed_spec_is_refused(self):
        other = self.scratch / "other.yaml"
        other.write_text(SPEC.read_text().replace("steps: 2", "steps: 3"))
        done = shardscope("sweep", other, "-o", self.done, expect=2)
        self.assertIn("--extend", done.stderr)

    def test_a_killed_sweep_loses_at_most_the_running_case(self):
        folder, mark = self.scratch / "killed", f"SHARDSCOPE_TEST_MARK={uuid.uuid4()}"
        environment = dict(os.environ, **dict([mark.split("=")]))
        sweep = subprocess.Popen([PROGRAM, "sweep", str(SPEC), "-o", str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env=environment)
        try:
            self.assertTrue(eventually(lambda: finished(folder) or sweep.poll() is not None), "no case was finished")
        finally:
            sweep.send_signal(signal.SIGKILL)
            sweep.wait()
        kept = finished(folder)
        self.assertTrue(kept)
        self.assertTrue(eventually(lambda: not marked_processes(mark)), "ranks were left behind")
        shardscope("sweep", SPEC, "-o", folder)
        now = finished(folder)
        self.assertEqual(len(now), CASES)
        self.assertEqual({case: now[case] for case in kept}, kept)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
