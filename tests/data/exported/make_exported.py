#!/usr/bin/env python3
"""Makes the .pt2 files beside it, and expected.json: the losses that PyTorch gives, eager and in one process, for what they hold.

The files are what `shardscope export` writes, packed again with deflate (their JSON shrinks to a tenth) and without the example
inputs, which nothing reads. Models: tests/graph/models.py and llama.json.

  python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.24.0
  V/bin/python tests/data/exported/make_exported.py
"""
import json
import pathlib
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
EXPORT = ROOT / "harness" / "workload" / "python" / "export_model.py"
MODELS = "tests/graph/models.py"
# name: the arguments of export
FILES = {
    "llama": ["--hf=tests/data/exported/llama.json", "--batch=2", "--seq=16", "--no-weights"],
    "mixed": [f"--function={MODELS}:mixed"],
    "resnet": [f"--function={MODELS}:resnet"],
    "dropping": [f"--function={MODELS}:dropping"],
    "reached": [f"--function={MODELS}:reached"],
}
LEFT_OUT = ("data/sample_inputs/",)


def repack(path):
    with zipfile.ZipFile(path) as z:
        members = [(i.filename, z.read(i)) for i in z.infolist() if not any(part in i.filename for part in LEFT_OUT)]
    with zipfile.ZipFile(path, "w") as z:
        for name, data in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            # Weights are read in pieces, so they lie as they are.
            stored = "/weight_" in name or "/tensor_" in name
            z.writestr(info, data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED, 9)


def python(*words):
    done = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, capture_output=True, text=True)
    answer = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {"error": done.stderr}
    if "error" in answer:
        sys.exit(f"{words}: {answer['error']}")
    return answer


def main():
    expected = {}
    for name, arguments in FILES.items():
        path = HERE / f"{name}.pt2"
        print(python(EXPORT, *arguments, f"--output={path}"), flush=True)
        repack(path)
        if name in ("mixed", "resnet", "reached"):
            expected[name] = python(ROOT / "tests" / "graph" / "reference.py", f"{MODELS}:{name}")
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
