"""Bad input of the virtual world, as the command line meets it: one sentence with what would be right, exit code 2.

  bad_input_test.py PROGRAM      PROGRAM: build/bin/shardscope
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
PRESETS = pathlib.Path(__file__).resolve().parents[2] / "harness" / "cost" / "presets"
GOOD = (PRESETS / "a100-80gb.yaml").read_text(encoding="utf-8")

# What is wrong in a hardware file: text to replace, by what, and what the sentence must name.
FILES = [
    ("another version", "version: 1", "version: 2", ["version", "2", "1"]),
    ("no version", "version: 1\n", "", ["version"]),
    ("a negative cost", "optimizer_us: 2000", "optimizer_us: -2000", ["optimizer_us", "-2000"]),
    ("a cost that is no number", "optimizer_us: 2000", "optimizer_us: .nan", ["optimizer_us"]),
    ("an infinite rate", "tflops: 271.2", "tflops: .inf", ["tflops"]),
    ("a word for a number", "launch_us: 12", "launch_us: fast", ["launch_us", "fast"]),
    ("an unknown key", "launch_us: 12", "lunch_us: 12", ["lunch_us"]),
    ("a broken file", "ops:", "ops: [", ["hardware.yaml"]),
]
# Settings that do not go together, and words that nobody has.
SETTINGS = [
    ("an unknown preset names the nearest", ["--hardware", "a100-80g"], ["a100-80g", "a100-80gb"]),
    ("an unknown network names the nearest", ["--hardware", "a100-80gb", "--network", "aws-p4"], ["aws-p4d"]),
    ("an unknown model names the nearest", ["--model", "llama-2-7bb"], ["llama-2-7b"]),
    ("a group that does not divide the world", ["--world", "12", "--strategy", "hybrid_shard:8"], ["8", "12"]),
    ("a file that is not there", ["--hardware", "nowhere/machine.yaml"], ["nowhere/machine.yaml"]),
    ("16-bit products on hardware without a rate for them", ["--hardware", "v100-32gb", "--param-dtype", "bf16"], ["bf16", "v100-32gb"]),
    ("a skew of a rank that is not there", ["--world", "4", "--arrival-skew", "4:1us"], ["rank 4", "0 to 3"]),
    ("a skew without a time", ["--arrival-skew", "3"], ["RANK:TIME"]),
    ("a rank twice", ["--arrival-skew", "1:1us,1:2us"], ["once"]),
]


class BadInput(unittest.TestCase):
    def refused(self, arguments, words):
        done = subprocess.run([PROGRAM, "run", "--device", "virtual", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertRegex(done.stderr, r"; \w+", "the sentence says what would be right")

    def test_settings(self):
        for what, arguments, words in SETTINGS:
            with self.subTest(what):
                self.refused(arguments, words)

    def test_hardware_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hardware.yaml")
            for what, old, new, words in FILES:
                with self.subTest(what):
                    self.assertIn(old, GOOD)
                    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
                    self.refused(["--hardware", str(path)], [*words, "hardware.yaml"])

    def test_the_file_itself_is_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hardware.yaml")
            path.write_text(GOOD, encoding="utf-8")
            done = subprocess.run([PROGRAM, "run", "--device", "virtual", "--hardware", str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
