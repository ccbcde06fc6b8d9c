"""Runs shardscope and reads what it says. Shared by the tests of this folder."""
import json
import os
import subprocess
import sys

PROGRAM, DATA = sys.argv[1], sys.argv[2]


def flags(settings):
    out = []
    for name, value in settings.items():
        out += ["--" + name.replace("_", "-"), str(value)]
    return out


def call(*arguments, timeout=120, env=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})})


def run_json(settings, extra=(), command="run", env=None):
    """The document of `run --json` (or `plan --json`); fails when the command does."""
    done = call(command, *flags(settings), *extra, "--json", env=env)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{command} {settings} {extra}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


class Checks:
    """Counts and reports; main ends with its verdict."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def __call__(self, ok, what):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print("FAILED:", what, flush=True)

    def done(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)
