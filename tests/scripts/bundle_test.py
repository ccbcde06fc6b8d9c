#!/usr/bin/env python3
"""scripts/bundle, from a build that is there: unpacked in another folder, under another name, it runs.

  bundle_test.py BUILD PYTHON        PYTHON: one with the torch that BUILD is built against
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, PYTHON = map(pathlib.Path, sys.argv[1:3])
MODEL = ["--set", "layers=2,dim=64,heads=4,kv_heads=4,ffn=128,vocab=256", "--seq", "16", "--steps", "2", "--warmup", "1"]


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.keep.name)
        packed = folder / "packed.tar.gz"
        done = subprocess.run([ROOT / "scripts" / "bundle", "--from", BUILD, "-o", packed], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        cls.bytes = packed.stat().st_size
        with tarfile.open(packed) as tar:
            cls.names = tar.getnames()
            tar.extractall(folder)
        (made,) = folder.glob("shardscope-*")
        cls.dir = folder / "moved elsewhere"
        made.rename(cls.dir)
        # Only what the wrapper finds: nothing of this build's environment.
        python = folder / "python"
        python.mkdir()
        (python / "python3").write_text(f'#!/bin/sh\nexec "{PYTHON}" "$@"\n')
        (python / "python3").chmod(0o755)
        cls.with_torch = {"HOME": str(folder), "PATH": f"{python}:/usr/bin:/bin"}
        cls.without_torch = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TORCH_DIR": str(folder / "no torch")}

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def call(self, *arguments, environment=None):
        return subprocess.run([self.dir / "shardscope", *arguments], env=environment or self.with_torch, cwd="/", capture_output=True,
                              text=True, timeout=100)

    def test_it_is_small_and_one_folder(self):
        self.assertLessEqual(self.bytes, 60_000_000)
        self.assertEqual(len({name.split("/")[0] for name in self.names}), 1)

    def test_doctor_finds_the_rank_program_and_its_torch(self):
        ran = self.call("doctor", "--json")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        found = {f["name"]: f["value"] for f in json.loads(ran.stdout)["findings"]}
        self.assertEqual(found["rank program"], str(self.dir / "bin" / "shardscope-rank"))
        self.assertIn("libtorch", found)

    def test_a_case_runs_on_the_cpu(self):
        ran = self.call("run", *MODEL, "--json")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        result = json.loads(ran.stdout)
        self.assertEqual(result["status"], "ok")
        self.assertEqual(len(result["losses"]), 3)

    def test_torch_is_also_found_by_its_folder(self):
        torch = subprocess.run([PYTHON, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
                               capture_output=True, text=True, check=True).stdout.strip()
        ran = self.call("run", *MODEL, "--json", environment=dict(self.without_torch, TORCH_DIR=torch))
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_without_torch_doctor_says_what_to_install_and_plan_works(self):
        ran = self.call("doctor", environment=self.without_torch)
        self.assertEqual(ran.returncode, 3)
        self.assertIn("pip install torch==2.11.0", ran.stdout)
        self.assertEqual(self.call("plan", environment=self.without_torch).returncode, 0)

    def test_another_torch_is_refused_by_its_version(self):
        torch = pathlib.Path(self.without_torch["TORCH_DIR"])
        (torch / "lib").mkdir(parents=True)
        (torch / "lib" / "libtorch_cpu.so").touch()
        (torch / "version.py").write_text("__version__ = '2.10.1+cu128'\n")
        ran = self.call("doctor", environment=self.without_torch)
        self.assertEqual(ran.returncode, 3)
        self.assertIn("torch 2.10.1, and this bundle is built with 2.11.0", ran.stdout)

    def test_programs_know_no_folder_of_the_machine_that_built_them(self):
        for program in ("bin/shardscope", "libexec/shardscope-rank"):
            path = subprocess.run(["readelf", "-d", self.dir / program], capture_output=True, text=True, check=True).stdout
            self.assertIn("[$ORIGIN/../lib]", path)

    def test_gpu_tests_run_or_say_that_there_are_none(self):
        ran = subprocess.run([self.dir / "gpu-tests"], env=self.with_torch, capture_output=True, text=True, timeout=100)
        if any(p.stat().st_mode & 0o100 for p in (self.dir / "tests").iterdir()):
            self.assertIn("test programs", ran.stdout)
        else:
            self.assertEqual(ran.returncode, 3)


if __name__ == "__main__":
    if shutil.which("patchelf") is None:
        print("skipped: no patchelf here; scripts/dependencies installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
