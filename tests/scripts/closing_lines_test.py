#!/usr/bin/env python3
"""scripts/lib/closing_lines.py behind a real ctest: skipped tests with their reasons, ctest's count as the last line.

  closing_lines_test.py CTEST
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CTEST = sys.argv[1]
SAYS_77 = ("sh", "-c", "echo noise; echo 'skipped: no such thing; install it'; exit 77")
GOOGLE = ("printf", r"Running main() from x\nNote: Google Test filter = A.B\n[==========] Running 1 test\n[ RUN      ] A.B\n"
          r"/path/x_test.cc:12: Skipped\nno GPU here: no driver\n\n[  SKIPPED ] A.B (0 ms)\n")


def quoted(word):
    return '[==[' + word + ']==]'


class ClosingLines(unittest.TestCase):
    def run_ctest(self, tests, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name, (command, properties) in tests.items():
                lines.append(f"add_test({name} {' '.join(map(quoted, command))})")
                if properties:
                    lines.append(f"set_tests_properties({name} PROPERTIES {properties})")
            pathlib.Path(folder, "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
            junit = folder + "/tests.xml"
            ctest = subprocess.Popen([CTEST, "--test-dir", folder, "--output-junit", junit, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            done = subprocess.run([ROOT / "scripts/lib/closing_lines.py", junit], stdin=ctest.stdout, capture_output=True, text=True)
            ctest.stdout.close()
            ctest.wait()
            self.assertEqual(done.stderr, "")
            return done.stdout.splitlines()

    def test_skipped_tests_are_listed_with_reasons_and_the_count_is_last(self):
        lines = self.run_ctest({"good": (("true",), ""), "by_code": (SAYS_77, "SKIP_RETURN_CODE 77"), "again": (SAYS_77, "SKIP_RETURN_CODE 77"),
                                "by_text": (GOOGLE, "SKIP_REGULAR_EXPRESSION SKIPPED")})
        self.assertEqual(lines[-4:], ["Skipped, 3 tests:", "  by_code, again: no such thing; install it", "  by_text: no GPU here: no driver",
                                      "100% tests passed, 0 tests failed out of 4"])
        self.assertEqual(sum("tests passed" in line for line in lines), 1)
        self.assertEqual(sum("did not run" in line for line in lines), 0)

    def test_what_failed_stands_above_the_count(self):
        lines = self.run_ctest({"good": (("true",), ""), "bad": (("false",), ""), "absent": (("/nowhere",), ""), "by_code": (SAYS_77, "SKIP_RETURN_CODE 77")})
        self.assertEqual(lines[-1], "50% tests passed, 2 tests failed out of 4")
        self.assertIn("The following tests FAILED:", lines)
        self.assertTrue(any("bad (Failed)" in line for line in lines))
        self.assertTrue(any("absent (Not Run)" in line for line in lines))

    def test_without_skipped_tests_nothing_is_added(self):
        lines = self.run_ctest({"good": (("true",), "")})
        self.assertEqual(lines[-1], "100% tests passed, 0 tests failed out of 1")
        self.assertFalse(any("kipped" in line for line in lines))

    def test_a_listing_passes_through(self):
        lines = self.run_ctest({"good": (("true",), "")}, "-N")
        self.assertIn("Total Tests: 1", lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
