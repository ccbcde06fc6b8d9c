#!/usr/bin/env python3
"""Who may include whom, and what library code may call: the rules of the rooms, checked over the sources.

  scripts/include_rules.py          checks the checkout it lies in; one line per breach; exit 1 when there is one
  scripts/include_rules.py ROOT     checks another tree (the tests of this script use it), all rules but `stale`
  scripts/include_rules.py ROOT --stale    the rule `stale` too
  scripts/include_rules.py --torch-free    lists the files that must not reach LibTorch, and checks nothing

Rules
  rooms      a file includes only rooms that its own room may know (ROOMS below)
  torch      LibTorch headers only in the files named in TORCH; no other file reaches one, however indirectly
  vendor     CUDA, NCCL, CUPTI and NVTX headers only in files named for them
  form       #pragma once in headers; quoted includes are written from the repository root and exist; own header first
  clock      one place reads a clock or sleeps: fsdp/core/clock.cc
  output     library code neither prints nor exits
  random     no entropy but a printed seed
  stale      every permission below is used by some file, and every pattern matches one: what nobody needs is not allowed
  circle     no room's permissions lead back to it, but for the interfaces named in INTERFACES
"""
import fnmatch
import pathlib
import re
import sys

# Single files that may include more than their room, with the reason.
FILES = {"fsdp/schedule/scripted_step.": ["fsdp/device/virtual"]}   # drives the scheduler without a model, on the virtual clock
# room -> what it may include besides itself. The longest matching room wins; an entry may be a room or one header.
INTERFACES = ["fsdp/device/device.h", "fsdp/comm/collectives.h"]
PLAIN_FSDP = ["fsdp/core", "fsdp/plan", "fsdp/schedule", "fsdp/device", "fsdp/comm"]
ROOMS = {
    "fsdp/core": [],
    "fsdp/plan": ["fsdp/core"],
    "fsdp/schedule": ["fsdp/core", "fsdp/plan"] + INTERFACES,
    "fsdp/device": ["fsdp/core", "fsdp/comm/collectives.h"],
    "fsdp/comm": ["fsdp/core", "fsdp/device"],
    "fsdp/module": PLAIN_FSDP,
    "harness/analysis": ["fsdp/core"],
    "harness/workload": PLAIN_FSDP + ["fsdp/module"],
    "harness/cost": ["fsdp/core", "fsdp/plan", "fsdp/comm"],
    "harness/sweep": ["fsdp/core", "fsdp/plan", "fsdp/schedule", "harness/workload", "harness/cost", "harness/store", "harness/analysis"],
    "harness/store": ["fsdp/core", "harness/analysis"],
    "harness/trace": ["fsdp/core", "fsdp/device", "harness/analysis"],
    "harness/advise": ["fsdp/core", "fsdp/plan", "fsdp/schedule", "harness/analysis", "harness/store", "harness/sweep", "harness/workload"],
    "harness/trial": PLAIN_FSDP + ["fsdp/module", "harness/workload", "harness/cost", "harness/sweep", "harness/store", "harness/analysis",
                                   "harness/trace"],
    "harness/cli": ["fsdp/core", "fsdp/plan", "fsdp/schedule", "harness/workload", "harness/cost", "harness/sweep", "harness/trial", "harness/trace",
                    "harness/store", "harness/advise", "reports"],
    "reports": ["fsdp/core", "harness/analysis", "harness/store", "harness/sweep", "harness/advise"],
    "bench": PLAIN_FSDP + ["harness", "reports"],
    "tests": ["fsdp", "harness", "reports", "bench"],
}
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
TORCH = ["fsdp/module/*", "harness/workload/*", "fsdp/comm/gloo_*", "fsdp/device/cuda/*", "harness/trial/rank*", "harness/trial/op_observer*",
         "tests/*"]
# Torch-free by name although their room may use LibTorch: `shardscope` itself links them.
TORCH_FREE = ["harness/workload/model_settings*", "harness/workload/describe*", "harness/workload/model_config*", "harness/workload/model_fields*",
              "harness/workload/model_presets*", "harness/workload/exported*", "harness/workload/python_scripts*",
              "harness/trial/rank_processes*", "harness/trial/rank_link*", "harness/trial/rank_progress*", "harness/trial/rank_watch*"]
VENDOR = {
    "CUDA": (re.compile(r"^(cuda|cuda_runtime|cuda_runtime_api|driver_types|cuda_fp16|cuda_bf16|cublas.*|nvml)\.h$"), ["*cuda*", "*cupti*"]),
    "NCCL": (re.compile(r"^nccl.*\.h$"), ["*nccl*"]),
    "CUPTI": (re.compile(r"^cupti.*\.h$"), ["*cupti*"]),
    "NVTX": (re.compile(r"^nvtx3/|^nvToolsExt"), ["*nvtx*"]),
}
CALLS = {
    "clock": (re.compile(r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|clock_nanosleep|nanosleep|usleep|sleep_for"
                         r"|__rdtsc)\b|\bstd::time\s*\("),
              "only fsdp/core/clock.cc reads a clock or sleeps; call fsdp/core/clock.h"),
    "output": (re.compile(r"\bstd::(cout|cerr|clog|exit|_Exit|quick_exit|abort|puts|printf)\b|(?<![\w:.>])(printf|fprintf|vprintf|puts|putchar|exit|_exit|"
                          r"quick_exit)\s*\(|\bfmt::print\s*\(|\bfprintf\s*\(\s*std"),
               "library code neither prints nor exits; return the text or throw (fsdp/core/errors.h)"),
    "random": (re.compile(r"\brandom_device\b|(?<![\w:.>])s?rand\s*\("), "numbers come from a printed seed"),
}
EXCEPT = {
    "clock": ["fsdp/core/clock.cc", "tests/*"],
    "output": ["harness/cli/*", "harness/trial/rank_main.cc", "bench/*", "tests/*",
               "harness/trial/rank_processes.cc"],   # the child between fork and exec can only _exit
    "random": [],
}
GENERATED = ["harness/trial/revision.h"]   # CMake writes them into the build folder
SOURCES = ("fsdp", "harness", "reports", "bench", "tests")
ENDINGS = (".h", ".cc", ".inc", ".cu", ".cuh")
VENDORED = ["fsdp/comm/gloo_stub/*",   # declarations under the names that LibTorch's headers ask for
            "harness/trace/nvtx/*"]    # NVTX, unchanged
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def code_only(text):
    """The text without comments and without the contents of string and character literals; lines stay where they are."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return token.sub(lambda m: "\n" * m.group(0).count("\n") + ('""' if m.group(0)[0] in "R\"'" else ""), text)


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, p) for p in patterns)


def room_of(path):
    return max((r for r in ROOMS if path.startswith(r + "/")), key=len, default=None)


def may_include(path, target):
    room = room_of(path)
    more = [a for file, allowed in FILES.items() if path.startswith(file) for a in allowed]
    return any(target == a or target.startswith(a + "/") for a in [room, *ROOMS[room], *more])


def uses_torch_by_right(path):
    return matches(path, TORCH) and not matches(path, TORCH_FREE)


def reaches_torch(path, includes, seen):
    """The chain of includes from path to a LibTorch header, or None."""
    for _, target in includes.get(path, []):
        if TORCH_HEADER.match(target):
            return [path, target]
    for _, target in includes.get(path, []):
        if target in includes and target not in seen:
            seen.add(target)
            chain = reaches_torch(target, includes, seen)
            if chain:
                return [path] + chain
    return None


def check_form(root, path, text, includes):
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        yield 1, "form", "a header starts with #pragma once"
    own = pathlib.PurePath(path).with_suffix(".h").as_posix()
    if path.endswith((".cc", ".cu")) and (root / own).exists() and includes and includes[0][1] != own:
        yield includes[0][0], "form", f"the first include is the file's own header, {own}"


def check_includes(root, path, includes):
    for line, target in includes:
        inside = target.split("/")[0] in SOURCES
        if inside and target not in GENERATED and not (root / target).exists():
            yield line, "form", f"{target} does not exist (includes are written from the repository root)"
        elif inside and not may_include(path, target):
            yield line, "rooms", f"{room_of(path)} may not include {target}"
        if TORCH_HEADER.match(target) and not uses_torch_by_right(path):
            yield line, "torch", f"LibTorch header {target} outside the torch files"
        for name, (header, allowed) in VENDOR.items():
            if header.search(target) and not matches(path, allowed):
                yield line, "vendor", f"{name} header {target} in a file that is not named for {name}"


def check_calls(path, code):
    for rule, (pattern, remedy) in CALLS.items():
        if not matches(path, EXCEPT[rule]):
            for m in pattern.finditer(code):
                yield code.count("\n", 0, m.start()) + 1, rule, f"{m.group(0).strip()}: {remedy}"


def unused_permissions(includes):
    """Entries of ROOMS and FILES that no file of the room needs."""
    for room, allowed in ROOMS.items():
        inside = [target for path, found in includes.items() if room_of(path) == room for _, target in found]
        for entry in allowed:
            if not any(target == entry or target.startswith(entry + "/") for target in inside):
                yield f"{room} may include {entry}, and no file of it does"
    for prefix, allowed in FILES.items():
        inside = [target for path, found in includes.items() if path.startswith(prefix) for _, target in found]
        for entry in allowed:
            if not any(target.startswith(entry) for target in inside):
                yield f"{prefix} may include {entry}, and does not"


def unused_patterns(root, texts, includes):
    """Patterns that match no file which needs them."""
    torch = {path for path in texts if reaches_torch(path, includes, {path})}
    needs = {"TORCH": (TORCH, torch), "TORCH_FREE": (TORCH_FREE, {path for path in texts if matches(path, TORCH)})}
    for name, (header, allowed) in VENDOR.items():
        needs[name] = (allowed, {path for path, found in includes.items() if any(header.search(target) for _, target in found)})
    for rule, allowed in EXCEPT.items():
        needs[rule] = (allowed, {path for path, text in texts.items() if CALLS[rule][0].search(code_only(text))})
    files = {p.relative_to(root).as_posix() for top in SOURCES for p in (root / top).rglob("*")}
    needs["VENDORED"] = (VENDORED, files)
    for name, (patterns, paths) in needs.items():
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
                yield f"{name}: no file needs {pattern}"


def circles():
    """Rooms whose permissions lead back to them. A single header (an interface) is no step of a circle."""
    steps = {room: {other for entry in allowed if not entry.endswith(".h") for other in ROOMS if other == entry or other.startswith(entry + "/")}
             for room, allowed in ROOMS.items()}
    for room in steps:
        seen, waiting = set(), list(steps[room])
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting += [s for s in steps.get(at, ())]
        if room in seen:
            yield f"{room} may include itself by way of others"


def breaches_of_files(root, texts, includes):
    for path, text in texts.items():
        found = [*check_form(root, path, text, includes[path]), *check_includes(root, path, includes[path]), *check_calls(path, code_only(text))]
        if not uses_torch_by_right(path) and not any(rule == "torch" for _, rule, _ in found):
            chain = reaches_torch(path, includes, {path})
            if chain:
                found.append((1, "torch", "reaches LibTorch: " + " -> ".join(chain)))
        yield from (f"{path}:{line}: [{rule}] {what}" for line, rule, what in found)


def main():
    flags = {argument for argument in sys.argv[1:] if argument.startswith("--")}
    roots = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    root = pathlib.Path(roots[0] if roots else pathlib.Path(__file__).resolve().parents[1])
    texts = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8")
             for top in SOURCES for p in sorted((root / top).rglob("*")) if p.suffix in ENDINGS}
    texts = {p: t for p, t in texts.items() if not matches(p, VENDORED) and room_of(p)}
    includes = {p: [(t.count("\n", 0, m.start()) + 1, m.group(2)) for m in INCLUDE.finditer(t)] for p, t in texts.items()}
    if "--torch-free" in flags:
        print("\n".join(p for p in texts if not uses_torch_by_right(p)))
        return 0
    breaches = list(breaches_of_files(root, texts, includes))
    breaches += [f"scripts/include_rules.py: [circle] {what}" for what in circles()]
    if not roots or "--stale" in flags:
        stale = [*unused_permissions(includes), *unused_patterns(root, texts, includes)]
        breaches += [f"scripts/include_rules.py: [stale] {what}" for what in stale]
    print("\n".join(breaches) if breaches else f"include rules: {len(texts)} files, no breach")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
