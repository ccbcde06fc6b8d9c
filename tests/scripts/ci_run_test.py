#!/usr/bin/env python3
""".ci/run over scripts that only tell how they were called: first the newcomer's commands in an environment of his, then the full set."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TELL = """#!/bin/sh
echo "$(basename "$0") $* CI=${CI-unset} WERROR=$SHARDSCOPE_WERROR PYTHON=${SHARDSCOPE_PYTHON-unset} cache=$SHARDSCOPE_CACHE \
$(ls -A "$SHARDSCOPE_CACHE" 2>/dev/null | wc -l)" >>calls
"""
TEST = TELL + """
mkdir -p "$SHARDSCOPE_CACHE"; touch "$SHARDSCOPE_CACHE/torch"
if [ -n "${CI:-}" ]; then echo "$FULL_SAYS"; else echo "$WALK_SAYS"; fi
echo "100% tests passed, 0 tests failed out of 7"
[ -z "${CI:-}" ] || exit ${FULL_ENDS:-0}
exit ${WALK_ENDS:-0}
"""


class CiRun(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.folder = pathlib.Path(keep.name, "a checkout")
        (self.folder / ".ci").mkdir(parents=True)
        (self.folder / "scripts").mkdir()
        shutil.copy(ROOT / ".ci/run", self.folder / ".ci/run")
        for name, text in {"quickstart": TELL, "test": TEST}.items():
            (self.folder / "scripts" / name).write_text(text)
            (self.folder / "scripts" / name).chmod(0o755)
        self.home = pathlib.Path(keep.name, "home")

    def call(self, **more):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CI": "yes", "SHARDSCOPE_PYTHON": "/usr/bin/python3", **more}
        done = subprocess.run([self.folder / ".ci/run"], env=environment, cwd="/", capture_output=True, text=True)
        return done, (self.folder / "calls").read_text().splitlines()

    def test_first_the_newcomers_walk_then_the_full_set(self):
        done, calls = self.call()
        cache = f"cache={self.home}/.cache/shardscope"
        self.assertEqual(calls, [f"quickstart  CI=unset WERROR=ON PYTHON=unset {cache} 0", f"test  CI=unset WERROR=ON PYTHON=unset {cache} 0",
                                 f"test  CI=yes WERROR=ON PYTHON=/usr/bin/python3 {cache} 1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "100% tests passed, 0 tests failed out of 7")
        self.assertRegex(done.stdout.splitlines()[-2], "^continuous integration: walk 0 min, full 0 min, 0 minutes in all$")

    def test_a_cache_that_is_full_is_left_alone(self):
        used = self.home / ".cache/shardscope"
        used.mkdir(parents=True)
        (used / "torch-2.11.0").touch()
        for _ in range(2):   # the second time its own cache is full
            (self.folder / "calls").unlink(missing_ok=True)
            _, calls = self.call()
            self.assertTrue(calls[0].endswith(f"cache={self.folder}/build/ci-cache 0"), calls[0])
        self.assertEqual(os.listdir(used), ["torch-2.11.0"])

    def test_without_ci_in_the_environment_the_full_set_has_it(self):
        _, calls = self.call(CI="")
        self.assertIn("CI=true", calls[-1])

    def test_a_walk_that_fails_ends_it_and_its_count_is_last(self):
        done, calls = self.call(WALK_ENDS="8")
        self.assertEqual((done.returncode, len(calls)), (8, 2))
        self.assertIn("tests passed", done.stdout.splitlines()[-1])

    def test_a_test_that_is_skipped_for_want_of_what_was_installed_is_a_failure(self):
        sentence = "  parity: no whole PyTorch in python; scripts/dependencies --full installs it"
        self.assertEqual(self.call(WALK_SAYS=sentence)[0].returncode, 0)
        self.assertEqual(self.call(FULL_SAYS=sentence)[0].returncode, 1)
        self.assertEqual(self.call(FULL_SAYS=sentence.replace("--full", "--cluster"))[0].returncode, 0)


if __name__ == "__main__":
    unittest.main()
