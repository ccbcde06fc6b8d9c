"""Each rule of scripts/include_rules.py is broken once in a small tree and must be named; a clean tree must pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "include_rules.py"


def verdict(files, *flags):
    """(exit code, output) for a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = pathlib.Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, folder, *flags], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class IncludeRules(unittest.TestCase):
    def breach(self, files, place):
        code, output = verdict(files)
        self.assertEqual(code, 1, output)
        self.assertIn(place, output)
        self.assertEqual(len(output.strip().splitlines()), 1, output)

    def clean(self, files):
        code, output = verdict(files)
        self.assertEqual(code, 0, output)

    def test_a_room_may_include_itself_and_what_stands_below(self):
        self.clean({"fsdp/core/a.h": "#pragma once\n", "fsdp/plan/b.h": '#pragma once\n#include "fsdp/core/a.h"\n',
                    "fsdp/plan/b.cc": '#include "fsdp/plan/b.h"\n\n#include <vector>\n'})

    def test_a_room_may_not_include_what_stands_above(self):
        self.breach({"fsdp/plan/b.h": "#pragma once\n", "fsdp/core/a.h": '#pragma once\n#include "fsdp/plan/b.h"\n'}, "fsdp/core/a.h:2: [rooms]")

    def test_the_scheduler_sees_interfaces_only(self):
        self.breach({"fsdp/device/host/h.h": "#pragma once\n", "fsdp/schedule/s.cc": '#include "fsdp/device/host/h.h"\n'}, "fsdp/schedule/s.cc:1: [rooms]")

    def test_torch_headers_stay_in_the_torch_rooms(self):
        self.clean({"fsdp/module/m.cc": "#include <ATen/ATen.h>\n"})
        self.breach({"fsdp/core/a.cc": "#include <ATen/ATen.h>\n"}, "fsdp/core/a.cc:1: [torch]")

    def test_torch_is_found_behind_other_headers(self):
        self.breach({"fsdp/module/m.h": "#pragma once\n#include <torch/torch.h>\n", "harness/trial/launch.cc": '#include "fsdp/module/m.h"\n'},
                    "reaches LibTorch: harness/trial/launch.cc -> fsdp/module/m.h -> torch/torch.h")

    def test_vendor_headers_only_in_files_named_for_them(self):
        self.clean({"fsdp/comm/nccl_collectives.cc": "#include <nccl.h>\n"})
        self.breach({"fsdp/comm/collectives.cc": "#include <nccl.h>\n"}, "[vendor] NCCL")

    def test_headers_start_with_pragma_once(self):
        self.breach({"fsdp/core/a.h": "int f();\n"}, "fsdp/core/a.h:1: [form]")

    def test_own_header_comes_first(self):
        self.breach({"fsdp/core/a.h": "#pragma once\n", "fsdp/core/a.cc": '#include <vector>\n#include "fsdp/core/a.h"\n'}, "fsdp/core/a.cc:1: [form]")

    def test_included_files_exist(self):
        self.breach({"fsdp/core/a.cc": '#include "fsdp/core/gone.h"\n'}, "fsdp/core/gone.h does not exist")

    def test_one_place_reads_a_clock(self):
        read = "auto t = std::chrono::steady_clock::now();\n"
        self.clean({"fsdp/core/clock.cc": read})
        self.breach({"harness/trial/a.cc": "\n" + read}, "harness/trial/a.cc:2: [clock]")

    def test_library_code_neither_prints_nor_exits(self):
        self.clean({"harness/cli/main.cc": 'void f() { std::cout << 1; exit(2); }\n'})
        for text in ("std::cerr << 1;", 'printf("x");', "exit(1);", "std::abort();"):
            self.breach({"reports/a.cc": f"void f() {{ {text} }}\n"}, "reports/a.cc:1: [output]")

    def test_words_in_comments_and_strings_are_no_calls(self):
        self.clean({"reports/a.cc": '// exit(1) is for programs\nconst char* s = "printf(1)"; /* std::cout */ int snprintf(char*);\nvoid g() { x.abort("r"); }\n'})

    def test_a_permission_that_nobody_uses_is_named(self):
        code, output = verdict({"fsdp/core/a.h": "#pragma once\n", "fsdp/plan/b.cc": '#include "fsdp/core/a.h"\n'}, "--stale")
        self.assertEqual(code, 1)
        self.assertIn("[stale] harness/analysis may include fsdp/core, and no file of it does", output)
        self.assertNotIn("fsdp/plan may include fsdp/core", output)

    def test_a_pattern_that_no_file_needs_is_named(self):
        torch = {"fsdp/module/m.cc": "#include <ATen/ATen.h>\n", "fsdp/comm/gloo_a.cc": "int f();\n"}
        code, output = verdict(torch, "--stale")
        self.assertEqual(code, 1)
        self.assertIn("[stale] TORCH: no file needs fsdp/comm/gloo_*", output)
        self.assertNotIn("TORCH: no file needs fsdp/module/*", output)

    def test_permissions_make_no_circle(self):
        sys.path.insert(0, str(SCRIPT.parent))
        import include_rules
        self.assertEqual(list(include_rules.circles()), [])
        include_rules.ROOMS["fsdp/plan"].append("fsdp/schedule")
        try:
            self.assertIn("fsdp/plan may include itself by way of others", list(include_rules.circles()))
        finally:
            include_rules.ROOMS["fsdp/plan"].remove("fsdp/schedule")


if __name__ == "__main__":
    unittest.main()
