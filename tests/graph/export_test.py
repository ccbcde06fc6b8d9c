"""`shardscope export` as users run it, with a real PyTorch; the example of docs/bring-your-model.md, command by command."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
ENVIRONMENT = {**os.environ, "SHARDSCOPE_PYTHON": sys.executable}
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAILED:", what, flush=True)


def shardscope(*words, cwd, environment=ENVIRONMENT):
    return subprocess.run([PROGRAM, *words], cwd=cwd, capture_output=True, text=True, timeout=300, env=environment)


def blocks(page, kind):
    return re.findall(rf"```{kind}\n(.*?)```", page, re.S)


def the_example_of_the_page(folder):
    page = (ROOT / "docs" / "bring-your-model.md").read_text()
    (folder / "my_model.py").write_text(blocks(page, r"python file=my_model\.py")[0])
    for line in blocks(page, "sh run")[0].strip().splitlines():
        words = shlex.split(line)
        done = shardscope(*words[1:], cwd=folder)
        check(done.returncode == 0, f"{line}: exit {done.returncode}: {done.stderr}")
    sys.path.insert(0, str(ROOT / "tests" / "graph"))
    import reference
    expected = reference.train(reference.parse([str(folder / "my_model.py") + ":make"]))["losses"]
    done = shardscope("run", "--model", "my_model.pt2", "--batch", "2", "--warmup", "1", "--steps", "4", "--json", cwd=folder)
    losses = json.loads(done.stdout)["losses"]
    check(all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(losses, expected)) and len(losses) == 5, f"losses {losses}, PyTorch's {expected}")


def what_cannot_be_exported_is_said(folder):
    models = str(ROOT / "tests" / "graph" / "models.py")
    cases = ((f"{models}:branching", 2, r"module part, .*models\.py:\d+ \(`if x\.sum\(\) > 0:`\) cannot be exported: .*torch\.where"),
             (f"{models}:no_loss", 2, r"gives torch\.float32 of shape \[2, 8\] and not a loss; return \(module, inputs, loss\)"),
             (f"{models}:absent", 2, r"has no function absent; it has: .*mixed"),
             (f"{folder}/none.py:make", 2, r"there is no file .*none\.py"),
             (models, 2, r"is not FILE\.py:FUNCTION"))
    for target, code, pattern in cases:
        done = shardscope("export", target, "-o", str(folder / "x.pt2"), cwd=folder)
        check(done.returncode == code and re.search(pattern, done.stderr) and done.stderr.count("\n") == 1, f"{target}: {done.returncode} {done.stderr}")
    check(not (folder / "x.pt2").exists(), "a file although nothing was exported")


def what_is_wrong_before_python_starts_is_said(folder):
    for words, code, text in ((["a.py:f", "-o", "x"], 2, "does not end in .pt2"), (["-o", "x.pt2"], 2, "give FILE.py:FUNCTION, or --hf"),
                              (["--hf", "c.json", "a.py:f", "-o", "x.pt2"], 2, "and not both")):
        done = shardscope("export", *words, cwd=folder)
        check(done.returncode == code and text in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    done = shardscope("export", "a.py:f", "-o", "x.pt2", cwd=folder, environment={**ENVIRONMENT, "SHARDSCOPE_PYTHON": "/absent/python"})
    check(done.returncode == 3 and "SHARDSCOPE_PYTHON" in done.stderr, f"no Python: {done.returncode} {done.stderr}")


with tempfile.TemporaryDirectory() as name:
    the_example_of_the_page(pathlib.Path(name))
    what_cannot_be_exported_is_said(pathlib.Path(name))
    what_is_wrong_before_python_starts_is_said(pathlib.Path(name))
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
