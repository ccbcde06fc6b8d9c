"""Text that a results.db, a spec, a path or a trace carries, in everything that the program writes: it becomes no code of
the policy, no markup of the page, no formula of the CSV, no control of the terminal, and no broken JSON.

usage: generated_text_test.py SHARDSCOPE HOSTILE_RESULTS
"""
import ast
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
import unittest

SHARDSCOPE, HOSTILE = (os.path.abspath(p) for p in sys.argv[1:3])
CODE = "import os; open('owned', 'w')"
# Everything that some reader takes for the end of a line, of a comment, of a string or of a text.
BREAKS = ["\r", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0", '"', "'", '"""', "'''", '\\"', "\\\n", "{}", "`", "$(", "-->",
          "</script>", "*/"]
PAYLOADS = [f"x{b}{CODE}{b}#" for b in BREAKS] + [f"coding: utf_7 +AAo-{CODE}+AAo-#", f"-*- coding=utf-7 -*- +AAo-{CODE}+AAo-", f"=cmd|' {CODE}'!A1",
            "\x1b]0;title\x07\x1b[2J" + CODE, "\x9b31m" + CODE, "\u202e" + CODE, "\u2066\u200f\u061c" + CODE, "\ufeff" + CODE, "caf\udce9 " + CODE, "\udcff\udc80\udc9b" + CODE]
ACTING = [c for first, last in ((0, 8), (0xb, 0x1f), (0x7f, 0x9f), (0x61c, 0x61c), (0x200b, 0x200b), (0x200e, 0x200f), (0x2028, 0x202e), (0x2060, 0x2069),
                                (0xfeff, 0xfeff)) for c in range(first, last + 1)]
# As much of torch as a policy names when it is imported.
STUBS = {"torch/__init__.py": "bfloat16 = float32 = float16 = None\n", "torch/distributed/__init__.py": "",
         "torch/distributed/device_mesh.py": "init_device_mesh = None\n",
         "torch/distributed/fsdp/__init__.py": "fully_shard = MixedPrecisionPolicy = BackwardPrefetch = FullyShardedDataParallel = MixedPrecision = ShardingStrategy = None\n",
         "torch/distributed/fsdp/wrap.py": "CustomPolicy = None\n"}


def raw(text):
    return text.encode("utf-8", "surrogateescape")


def called(arguments, cwd, code=(0, 1)):
    done = subprocess.run([SHARDSCOPE, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode in code, (arguments, done.returncode, done.stderr)
    return done


class GeneratedText(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="shardscope-text-")
        self.addCleanup(self.folder.cleanup)
        self.at = raw(self.folder.name)
        for name, text in STUBS.items():
            path = os.path.join(self.folder.name, "stubs", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)

    def results(self, i, payload, plan_name=None):
        """A directory with a results.db; the plan file that the fastest case names is there."""
        directory = os.path.join(self.at, b"r%d" % i)
        plan = raw(plan_name if plan_name else "plan.yaml")
        with open(os.path.join(self.at, plan), "w") as f:
            f.write('units:\n  - match: "model.layers.*"\n')
        made = subprocess.run([HOSTILE, directory, plan], cwd=self.at, input=raw(payload), stderr=subprocess.PIPE)
        self.assertEqual(made.returncode, 0, made.stderr)
        return directory

    def assert_python_is_ours(self, out, what):
        names = [t for t in tokenize.tokenize(io.BytesIO(out).readline)]
        self.assertEqual(names[0].string, "utf-8", what)
        for token in names:
            if token.type not in (tokenize.COMMENT, tokenize.STRING):
                self.assertNotIn("owned", token.string, what)
        for node in ast.parse(out).body:
            self.assertIsInstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef), what)
            for alias in getattr(node, "names", []):
                self.assertNotEqual(alias.name, "os", what)
        policy = os.path.join(self.at, b"policy.py")
        with open(policy, "wb") as f:
            f.write(out)
        ran = subprocess.run([sys.executable, "-B", policy], cwd=self.at, env={**os.environ, "PYTHONPATH": os.path.join(self.folder.name, "stubs")},
                             stderr=subprocess.PIPE)
        self.assertEqual(ran.returncode, 0, (what, ran.stderr))
        self.assertFalse(os.path.exists(os.path.join(self.at, b"owned")), what)

    def assert_harmless(self, out, what):
        text = out.decode("utf-8")   # nothing that is not UTF-8
        self.assertEqual([hex(ord(c)) for c in text if ord(c) in ACTING], [], what)

    def check_policies(self, directory, what):
        for form in ("fsdp2", "fsdp1"):
            done = called(["recommend", directory, "--format", form], self.at)
            self.assert_harmless(done.stdout, what)
            self.assert_python_is_ours(done.stdout, (form, what))
        done = called(["recommend", directory, "--format", "json"], self.at)
        self.assert_harmless(done.stdout, what)
        for r in json.loads(done.stdout)["recommendations"]:
            for form in ("fsdp2", "fsdp1"):
                if r.get(form):
                    self.assert_python_is_ours(r[form].encode(), (form, "json", what))
        self.assert_harmless(done.stderr, what)

    def check_all(self, directory, what):
        self.check_policies(directory, what)
        done = called(["report", directory, "--csv", "cases.csv"], self.at)
        self.assert_harmless(done.stdout, what)
        with open(os.path.join(self.at, b"cases.csv"), encoding="utf-8", errors="surrogateescape", newline="") as f:
            rows = list(csv.reader(f))
        self.assertEqual({len(row) for row in rows}, {len(rows[0])}, what)
        self.assertEqual([cell for row in rows for cell in row if cell[:1] in ("=", "+", "@", "\t", "\r")], [], what)
        with open(os.path.join(directory, b"report.html"), "rb") as f:
            page = f.read()
        self.assertEqual(page.count(b"<script"), 2, what)
        self.assertEqual(page.lower().count(b"</script"), 2, what)
        page.decode("utf-8")
        for more in ([], ["--json"]):
            done = called(["compare", directory, directory, *more], self.at)
            self.assert_harmless(done.stdout, what)
            if more:
                json.loads(done.stdout)
        called(["compare", directory, "--write-baseline", "base.json"], self.at)
        with open(os.path.join(self.at, b"base.json"), "rb") as f:
            json.load(f)

    def test_values_of_a_results_db(self):
        for i, payload in enumerate(PAYLOADS):
            with self.subTest(payload=payload):
                self.check_all(self.results(i, payload), payload)

    def test_the_name_of_a_plan_file(self):
        for i, payload in enumerate(PAYLOADS):
            name = payload.replace("/", "_").replace("\0", "_").strip()
            with self.subTest(name=name):
                self.check_policies(self.results(i, "x", name), name)

    def test_the_name_of_a_directory(self):
        for name in ("caf\udce9", "a\x1b[31mb", "\u202egpj.py", "a b'c", "x\ry"):
            with self.subTest(name=name):
                plain = self.results(99, "x")
                directory = os.path.join(self.at, raw(name))
                os.rename(plain, directory)
                self.check_all(directory, name)

    def test_errors_and_lists(self):
        """What the commands say of what they refuse, and of what they would do."""
        hostile = "\x1b]0;owned\x07\u202e\x9b31m"
        config = os.path.join(self.at, b"config.json")
        with open(config, "w") as f:
            json.dump({"architectures": [hostile]}, f)
        spec = os.path.join(self.at, b"spec.yaml")
        with open(spec, "w") as f:
            f.write('base: {steps: 1}\naxes: {wrap: ["class:%s", block], set: ["layers=2,\u202e=3"]}\n' % "\\e[31mLinear\\u202e")
        trace = os.path.join(self.at, b"t\xe9\x1b[2J.json")
        with open(trace, "w") as f:
            json.dump({"traceEvents": [{"ph": "X", "cat": hostile, "name": hostile, "ts": 1, "dur": 5, "pid": hostile, "tid": hostile},
                                       {"ph": "X", "cat": "kernel", "name": hostile, "ts": 3, "dur": 2, "pid": 0, "tid": 7}]}, f)
        nothing = os.path.join(self.at, b"no\x1bthing\xe9")
        for arguments in (["plan", "--model", config], ["run", "--model", config], ["plan", "--wrap", "class:" + hostile], ["plan", "--" + hostile], [hostile],
                          ["plan", hostile], ["plan", "--set", hostile], ["sweep", spec, "--dry-run"], ["sweep", nothing, "-o", "x"], ["report", nothing],
                          ["recommend", nothing], ["compare", nothing, nothing], ["analyze", nothing], ["analyze", trace], ["analyze", trace, "--json"],
                          ["plan", "--wrap", b"plan:" + nothing], ["run", "--device", "virtual", "--hardware", nothing], ["compare", self.at, b"x:wrap=\xe9"],
                          ["run", "--wrap", b"plan:" + nothing], ["plan", "--memory-budget", b"\xe9"]):
            with self.subTest(arguments=arguments):
                done = called([a if isinstance(a, bytes) else raw(a) for a in arguments], self.at, code=(0, 1, 2, 3))
                self.assert_harmless(done.stdout, arguments)
                self.assert_harmless(done.stderr, arguments)
                self.assertNotIn(b"a bug of this program", done.stderr)
                if "--json" in arguments and done.stdout:
                    json.loads(done.stdout)

    def test_settings_that_are_not_utf8_are_refused(self):
        plan, spec = os.path.join(self.at, b"caf\xe9.yaml"), os.path.join(self.at, b"spec.yaml")
        for path, text in ((plan, b'units:\n  - match: "model.layers.*"\n'), (spec, b'axes: {wrap: ["plan:caf\xe9.yaml"]}\n')):
            with open(path, "wb") as f:
                f.write(text)
        for arguments in (["plan", "--wrap", b"plan:" + plan], ["run", "--wrap", b"plan:" + plan], ["run", "--device", "virtual", "--wrap", b"plan:" + plan, "--json"],
                          ["sweep", spec, "-o", "out"]):
            with self.subTest(arguments=arguments):
                done = called(arguments, self.at, code=(2,))
                self.assertIn(b"is not UTF-8", done.stderr)
                self.assertEqual(done.stdout, b"")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
