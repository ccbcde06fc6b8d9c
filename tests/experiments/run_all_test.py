"""scripts/experiments as a user runs it: every spec is one that the program takes, the predicted ones pass, and their page is whole.

  run_all_test.py PROGRAM      PROGRAM: build/bin/shardscope
"""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "experiments"
sys.path.insert(0, str(FOLDER))
import results  # noqa: E402
from catalogue import EXPERIMENTS   # noqa: E402

PROGRAM = ""


def run(*words):
    return subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False)


class RunAll(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.output = pathlib.Path(tempfile.mkdtemp(prefix="shardscope-experiments."))
        cls.done = run(FOLDER / "run_all", "virtual_7b_h100", "-o", cls.output, "--program", PROGRAM)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.output)

    def finished(self):
        with sqlite3.connect(self.output / "virtual_7b_h100_8" / "results.db") as db:
            return db.execute("SELECT trial, case_id, finished_at FROM trials ORDER BY trial").fetchall()

    def test_every_spec_is_taken(self):
        for e in EXPERIMENTS:
            with self.subTest(e.name):
                done = run(PROGRAM, "sweep", FOLDER / f"{e.name}.yaml", "--dry-run")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("config_error", done.stdout)

    def test_names_are_unlike(self):
        self.assertEqual(len({e.name for e in EXPERIMENTS}), len(EXPERIMENTS))

    def test_the_predicted_ones_pass(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        for name in ("virtual_7b_h100_8", "virtual_7b_h100_64"):
            self.assertRegex(self.done.stdout, rf"(?m)^(shows|differs) +{name} ")

    def test_the_page_has_a_chart_and_a_report_for_each(self):
        page = (self.output / "index.html").read_text(encoding="utf-8")
        self.assertEqual(page.count("<svg"), 2)
        for name in ("virtual_7b_h100_8", "virtual_7b_h100_64"):
            self.assertIn(f"href='{name}/report.html'", page)
            self.assertTrue((self.output / name / "report.html").exists())
        for outside in ("src=", "http://", "https://", "@import"):
            self.assertNotIn(outside, page)

    def test_a_second_run_measures_nothing(self):
        before = self.finished()
        self.assertEqual(len(before), 18)
        self.assertEqual(run(FOLDER / "run_all", "virtual_7b_h100_8", "-o", self.output, "--program", PROGRAM).returncode, 0)
        self.assertEqual(self.finished(), before)

    def test_predictions_repeat_exactly(self):
        again = self.output / "again"
        self.assertEqual(run(PROGRAM, "sweep", FOLDER / "virtual_7b_h100_8.yaml", "-o", again).returncode, 0)
        first, second = (results.read(d) for d in (self.output / "virtual_7b_h100_8", again))
        self.assertEqual([(c.axes, c.status, c.samples, c.peak_bytes) for c in first], [(c.axes, c.status, c.samples, c.peak_bytes) for c in second])

    def test_workers_outlive_the_threads_that_asked_for_them(self):
        """Each measured case ends a stretch of predictions and its threads; a rank dies with the thread that started it."""
        spec = self.output / "stretches.yaml"
        spec.write_text("name: stretches\nbase: {set: {layers: 1, dim: 32, heads: 2, ffn: 32, vocab: 32}, seq: 8, steps: 1, warmup: 0}\n"
                        "axes: {seed: [0, 1, 2], device: [virtual, cpu]}\nrepeat: {min: 1, max: 1}\ntrace: none\n", encoding="utf-8")
        done = run(PROGRAM, "sweep", spec, "-o", self.output / "stretches", "--strict")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bad_usage_has_its_codes(self):
        self.assertEqual(run(FOLDER / "run_all", "nonsense").returncode, 2)
        self.assertEqual(run(FOLDER / "run_all", "01", "--program", "/nowhere").returncode, 3)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
