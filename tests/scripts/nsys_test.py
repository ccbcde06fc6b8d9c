#!/usr/bin/env python3
"""scripts/nsys with an nsys that is not one: it checks its arguments, runs what it is given, and hands out a SQLite export.

  nsys_test.py SHARDSCOPE RANK_PROGRAM EXPORT.sqlite
The rank program is any that speaks the protocol (the fake one of tests/trial).
"""
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARDSCOPE, RANK, EXPORT = sys.argv[1:4]

FAKE = r"""
    #!/usr/bin/env python3
    import json, os, shutil, subprocess, sys
    here = os.path.dirname(os.path.abspath(__file__))
    mood = os.environ.get("FAKE_NSYS", "")
    arguments = sys.argv[1:]
    if arguments[:2] == ["profile", "--help"]:
        print("" if mood == "old" else "--cuda-graph-trace= --cuda-event-trace= --nvtx-domain-include= --discard-environment=")
        sys.exit(0)
    with open(os.path.join(here, "calls"), "a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    if arguments[0] == "profile":
        output = arguments[arguments.index("-o") + 1]
        target = arguments[arguments.index("-o") + 2:]
        code = subprocess.call(target, close_fds=False)
        if mood != "silent":
            with open(output + ".nsys-rep", "w") as report:
                report.write("report")
        sys.exit(code)
    if arguments[0] == "export":
        if mood == "broken export":
            print("out of order", file=sys.stderr)
            sys.exit(1)
        shutil.copy(os.environ["FAKE_EXPORT"], arguments[arguments.index("-o") + 1])
"""


class Nsys(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name)
        (self.dir / "bin").mkdir()
        fake = self.dir / "bin" / "nsys"
        fake.write_text(textwrap.dedent(FAKE).lstrip())
        fake.chmod(0o755)
        self.out = self.dir / "out with space"
        self.environment = dict(os.environ, PATH=f"{fake.parent}:{os.environ['PATH']}", SHARDSCOPE=SHARDSCOPE, SHARDSCOPE_RANK=RANK,
                                FAKE_EXPORT=EXPORT, NSYS_TIMEOUT="60")
        self.environment.pop("NSYS", None)

    def call(self, *arguments, **environment):
        return subprocess.run([ROOT / "scripts" / "nsys", "-o", self.out, *arguments], env=dict(self.environment, **environment),
                              capture_output=True, text=True, timeout=100)

    def calls(self, kind):
        path = self.dir / "bin" / "calls"
        every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [c for c in every if c[0] == kind]

    def test_a_report_and_an_export_for_each_rank_and_their_analysis(self):
        ran = self.call("--", "run", "--world", "2", "--steps", "2")
        self.assertIn(ran.returncode, (0, 1), ran.stderr)      # the verdict on the fixture is not the matter here
        self.assertEqual(sorted(p.name for p in self.out.glob("rank?.*")), ["rank0.nsys-rep", "rank0.sqlite", "rank1.nsys-rep", "rank1.sqlite"])
        self.assertIn(json.loads((self.out / "case.json").read_text())["status"], ("ok", "near_oom"))
        self.assertIn("kernel", json.dumps(json.loads((self.out / "analysis.json").read_text())).lower() + ran.stdout.lower())
        self.assertEqual((self.out / "analysis.txt").read_text(), ran.stdout)
        self.assertIn("2 reports in", ran.stderr)
        self.assertTrue((self.out / "logs" / "rank1.log").exists())

    def test_the_flags_capture_the_measured_steps_of_our_domain(self):
        self.call("--", "run", "--world", "2")
        profiles = self.calls("profile")
        self.assertEqual(len(profiles), 2)
        for rank, call in enumerate(sorted(profiles, key=lambda c: c[c.index("-o") + 1])):
            flags, target = call[1:call.index("-f")], call[call.index("-o") + 2:]
            self.assertEqual(call[call.index("-o") + 1], str(self.out / f"rank{rank}"))
            self.assertEqual(target, [RANK, "--control-fd", "3"])
            for pair in (["-t", "cuda,nvtx,osrt"], ["-s", "none"], ["-c", "nvtx"], ["-p", "measured@shardscope"]):
                at = flags.index(pair[0])
                self.assertEqual(flags[at:at + 2], pair)
            for flag in ("--capture-range-end=stop", "--cuda-graph-trace=node", "--cuda-event-trace=false",
                         "--nvtx-domain-include=shardscope,NCCL", "--kill=none"):
                self.assertIn(flag, flags)
            self.assertFalse([f for f in flags if "gpu-metrics" in f])
        for call in self.calls("export"):
            self.assertIn("--type=sqlite", call)

    def test_an_older_nsys_gets_no_option_that_it_does_not_know(self):
        self.call("--", "run", "--world", "1", FAKE_NSYS="old")
        (call,) = self.calls("profile")
        self.assertFalse([f for f in call if f.startswith(("--cuda-graph", "--cuda-event", "--nvtx-domain", "--discard"))])

    def test_counters_only_when_asked_for(self):
        self.call("--gpu-metrics", "--", "run", "--world", "1")
        (call,) = self.calls("profile")
        self.assertIn("--gpu-metrics-devices=all", call)

    def test_a_case_of_a_sweep_is_run_with_its_own_settings(self):
        results = self.dir / "results"
        results.mkdir()
        db = sqlite3.connect(results / "results.db")
        db.executescript("CREATE TABLE cases(case_index, id); CREATE TABLE environment(case_index, name, value);"
                         "INSERT INTO cases VALUES (0, 'aaaa'), (1, 'bbbb');"
                         "INSERT INTO environment VALUES (1, 'command', 'shardscope run --world 3 --set ''layers=2,dim=64''');")
        db.commit()
        db.close()
        for case in ("bbbb", "1"):
            ran = self.call(results, case)
            self.assertIn(ran.returncode, (0, 1), ran.stderr)
            self.assertIn("3 reports in", ran.stderr)
        ran = self.call(results, "cccc")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("no finished case cccc", ran.stderr)
        self.assertEqual(self.call(self.dir / "nowhere", "1").returncode, 2)

    def test_a_range_that_never_opened_is_explained(self):
        ran = self.call("--", "run", "--world", "1", FAKE_NSYS="silent")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("left no report for rank0", ran.stderr)

    def test_a_case_that_fails_ends_with_its_code(self):
        ran = self.call("--", "run", "--world", "2", FAKE_RANK="0 exit repetition1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("did not end well", ran.stderr)

    def test_an_export_that_fails_says_what_nsys_said(self):
        ran = self.call("--", "run", "--world", "1", FAKE_NSYS="broken export")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("could not export rank0.nsys-rep: out of order", ran.stderr)

    def test_without_nsys_it_says_where_to_get_it(self):
        ran = self.call("--", "run", NSYS="/nowhere/nsys")
        self.assertEqual(ran.returncode, 3)
        self.assertIn("Nsight Systems", ran.stderr)

    def test_bad_usage_ends_with_two(self):
        for arguments in ([], ["--nonsense"], ["one"]):
            self.assertEqual(self.call(*arguments).returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
