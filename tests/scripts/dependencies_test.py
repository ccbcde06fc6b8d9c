#!/usr/bin/env python3
"""scripts/dependencies without a network: its environments are made by the real venv and pip from packages of this test's making,
and every script in their bin/ works where the environment ends up: fresh, made by an earlier revision under another name, moved."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = "torch-2.11.0"
STUBS = {
    # Every package is installed, and the machine's CMake is too old.
    "dpkg-query": 'shift 3\nfor name; do echo "$name ii "; done\n',
    "apt-get": "exit 100\n",
    "cmake": "echo cmake version 3.0.0\n",
    "ldd": "exit 0\n",
}


def wheel(folder, name, version, scripts, files):
    info = f"{name}-{version}.dist-info/"
    content = {info + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
               info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
               info + "entry_points.txt": "[console_scripts]\n" + "".join(f"{s} = {name}:main\n" for s in scripts), **files}
    content[info + "RECORD"] = "".join(f"{path},,\n" for path in [*content, info + "RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as out:
        for path, text in content.items():
            out.writestr(path, text)


class Dependencies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory(prefix="shardscope-dependencies-")
        cls.folder = pathlib.Path(cls.keep.name)
        cls.wheels, stubs = cls.folder / "wheels", cls.folder / "stubs"
        cls.wheels.mkdir()
        stubs.mkdir()
        for name, text in STUBS.items():
            (stubs / name).write_text("#!/bin/sh\n" + text)
            (stubs / name).chmod(0o755)
        wheel(cls.wheels, "torch", "2.11.0", ["torchrun", "torchfrtrace"],
              {"torch/__init__.py": "import sys\ndef main(): print('torch', sys.prefix)\n", "torch/lib/libtorch_cpu.so": ""})
        wheel(cls.wheels, "cmake", "3.31.0", ["cmake", "ctest", "cpack"], {"cmake/__init__.py": "def main(): print('cmake version 3.31.0')\n"})
        taken = ("SHARDSCOPE_", "PIP_", "VIRTUAL_ENV", "PYTHON")
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(taken)}
        cls.environment.update(PATH=f"{stubs}:{os.environ['PATH']}", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(cls.wheels))
        cls.cache = cls.folder / "first"
        done = cls.dependencies(cls.cache)
        if "venv failed" in done.stderr:
            cls.keep.cleanup()
            print("skipped: python3 -m venv does not work here; install the package python3-venv")
            sys.exit(77)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    @classmethod
    def dependencies(cls, cache, *arguments, **more):
        return subprocess.run([ROOT / "scripts" / "dependencies", *arguments], env={**cls.environment, "SHARDSCOPE_CACHE": str(cache), **more},
                              cwd="/", capture_output=True, text=True)

    def every_script_works(self, cache):
        for environment, ours in (cache / TORCH, {"torchrun", "torchfrtrace"}), (cache / "tools", {"cmake", "ctest", "cpack"}):
            scripts = [p for p in (environment / "bin").iterdir()
                       if p.is_file() and not p.is_symlink() and p.stat().st_mode & stat.S_IXUSR and p.read_bytes()[:2] == b"#!"]
            self.assertLessEqual({"pip"} | ours, {p.name for p in scripts})
            for script in scripts:
                ran = subprocess.run([script, "--version"], env=self.environment, cwd="/", capture_output=True, text=True)
                self.assertEqual(ran.returncode, 0, f"{script}: {ran.stderr}")
                if script.name in ("torchrun", "torchfrtrace", "pip"):
                    self.assertIn(str(environment), ran.stdout)
            active = subprocess.run(["sh", "-c", '. "$1" && printf %s "$VIRTUAL_ENV"', "sh", environment / "bin" / "activate"],
                                    env=self.environment, capture_output=True, text=True)
            self.assertEqual(active.stdout, str(environment))

    def test_console_scripts_of_a_fresh_environment_work(self):
        self.every_script_works(self.cache)
        self.assertEqual(sorted(p.name for p in self.cache.iterdir()), [".lock", "tools", TORCH])

    def test_a_second_call_does_nothing(self):
        again = self.dependencies(self.cache, PIP_FIND_LINKS=str(self.folder / "none"))
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        self.assertEqual(self.dependencies(self.cache, "--check").returncode, 0)

    def test_what_an_earlier_revision_made_under_another_name_is_mended(self):
        cache = self.folder / "earlier"
        shutil.copytree(self.cache, cache, symlinks=True)
        for name in TORCH, "tools":
            for path in (cache / name / "bin").iterdir():
                if path.is_file() and not path.is_symlink():
                    path.write_text(path.read_text().replace(str(self.cache / name), str(cache / name) + ".part"))
        self.assertEqual(self.dependencies(cache, "--check").returncode, 3)
        done = self.dependencies(cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.every_script_works(cache)
        self.assertEqual(self.dependencies(cache).stderr, "")

    def test_activation_is_mended_however_it_was_quoted(self):
        for i, quoted in enumerate(("{}", "'{}'", '"{}"')):
            cache = self.folder / f"quoted {i}"
            activate = cache / TORCH / "bin/activate"
            activate.parent.mkdir(parents=True)
            activate.write_text("VIRTUAL_ENV=" + quoted.format("/made/there") + "\nexport VIRTUAL_ENV\n")
            subprocess.run([sys.executable, ROOT / "scripts/lib/settle_environment.py", "/made/there", cache / TORCH], check=True)
            active = subprocess.run(["sh", "-c", '. "$1" && printf %s "$VIRTUAL_ENV"', "sh", activate], capture_output=True, text=True)
            self.assertEqual(active.stdout, str(cache / TORCH))

    def test_a_cache_folder_that_was_moved_is_mended_to_a_path_with_spaces_too(self):
        cache = self.folder / "moved to a new place"
        shutil.copytree(self.cache, self.folder / "before", symlinks=True)
        self.assertEqual(self.dependencies(self.folder / "before").returncode, 0)
        (self.folder / "before").rename(cache)
        done = self.dependencies(cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.every_script_works(cache)

    def test_an_interrupted_call_leaves_nothing_that_is_taken_for_whole(self):
        cache = self.folder / "interrupted"
        shutil.copytree(self.cache / "tools", cache / "tools", symlinks=True)
        none = self.folder / "none"
        broken = self.dependencies(cache, PIP_FIND_LINKS=str(none))
        self.assertEqual(broken.returncode, 3)
        self.assertIn("pip could not fetch torch==2.11.0; run again to retry", broken.stderr)
        library = cache / TORCH / "lib/python3.0/site-packages/torch/lib/libtorch_cpu.so"   # as far as a killed pip might have come
        library.parent.mkdir(parents=True)
        library.touch()
        self.assertEqual(self.dependencies(cache, "--check").returncode, 3)
        done = self.dependencies(cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(library.exists())
        self.every_script_works(cache)


if __name__ == "__main__":
    unittest.main()
