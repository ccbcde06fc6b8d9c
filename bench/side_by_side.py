#!/usr/bin/env python3
"""shardscope's runtime beside PyTorch's FSDP2 and FSDP1: the same models, CPU ranks, one thread each.

  scripts/dependencies --full         # the whole PyTorch; the programs alone need less
  bench/side_by_side.py [--rounds 3] [--model small medium] [--wrap block linear] [-o bench/results/side_by_side]

Every wrap of both models takes about ten minutes on two idle cores.

Arms run one after the other in rounds, so that the ratio of two arms of one round saw the same machine. Printed and written
(Markdown and JSON): the median over rounds of each arm's step time, of the CPU time of rank 0's process a step and of the ratio
of the step to ours; the peak of the allocator, and how far losses differ. `ours, gloo` puts both programs on the same
collectives; `ours` uses shared memory, its default in one machine. `one rank` is one process with one rank's batch and no
communication: ours and PyTorch without FSDP. PyTorch's arms keep their processes over the rounds and wait in between. PyTorch's peaks do
not depend on the machine: they are kept in bench/results/peer_peaks.json by version and program, and measured where they are missing there.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = {"small": dict(layers=4, dim=128, heads=4, ffn=352, vocab=512, seq=64, batch=4),
          "medium": dict(layers=8, dim=512, heads=8, ffn=1376, vocab=4096, seq=256, batch=2)}
WORLD, SEED = 2, 1234
PEAKS = ROOT / "bench/results/peer_peaks.json"
WRAPS = {"root": "root", "blocks:2": "blocks:2", "block": "block", "sublayer": "sublayer", "linear": "class:Linear"}   # peer's name -> ours


def arguments():
    cache = os.environ.get("SHARDSCOPE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shardscope")
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=12, help="timed steps of one run; of the medium model a quarter of them")
    p.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    p.add_argument("--wrap", nargs="+", choices=list(WRAPS), default=list(WRAPS))
    p.add_argument("--program", default=str(ROOT / "build/bin/shardscope"))
    p.add_argument("--python", default=os.environ.get("SHARDSCOPE_PYTHON", os.path.join(cache, "torch-2.11.0/bin/python")), help="with PyTorch")
    p.add_argument("-o", "--output", default=str(ROOT / "bench/results/side_by_side"), help="path without ending")
    return p.parse_args()


def commands(a, model, wrap):
    """arm -> argument list; the first arm is the one that ratios refer to."""
    shape = MODELS[model]
    steps = a.steps if model == "small" else max(1, a.steps // 4)
    dims = ",".join(f"{k}={shape[k]}" for k in ("layers", "dim", "heads", "ffn", "vocab")) + f",kv_heads={shape['heads']}"
    ours = [a.program, "run", "--model", "llama", "--set", dims, "--seq", str(shape["seq"]), "--batch", str(shape["batch"]), "--seed", str(SEED),
            "--wrap", WRAPS[wrap], "--steps", str(steps), "--warmup", "3", "--repetitions", "1", "--json"]
    peer = [a.python, str(ROOT / "bench/peer_fsdp.py"), "--wrap", wrap, "--steps", str(steps), "--warmup", "3", "--seed", str(SEED)]
    peer += [text for k, v in dict(shape, world=WORLD).items() for text in (f"--{k}", str(v))]
    arms = {"ours": ours + ["--world", str(WORLD)], "ours, gloo": ours + ["--world", str(WORLD), "--collectives", "gloo"],
            "FSDP2": peer + ["--impl", "fsdp2"], "FSDP1": peer + ["--impl", "fsdp1"]}
    if wrap == "block":
        arms |= {"ours, one rank": ours + ["--world", "1"], "PyTorch, one rank": peer + ["--impl", "single"]}
    return arms


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"side_by_side: exit {done.returncode} of: {' '.join(command)}\n{done.stderr[-2000:]}{done.stdout[-500:]}")
    result = json.loads(done.stdout)
    if "environment" in result:
        result["cpu_ns"] = int(result["environment"]["machine.cpu_ns_per_step"])
    return result


class Peer:
    """PyTorch's arm: its processes stay over all rounds, however many; each answer has to come in time."""

    def __init__(self, command, answer_s=600, timer=threading.Timer):
        self.command, self.answer_s, self.timer = command, answer_s, timer
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command + ["--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True)

    def run(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def answer(self):
        """Of a run; the first is given after the start and the warm-up, which would disturb the other arms."""
        late = threading.Event()
        limit = self.timer(self.answer_s, lambda: (late.set(), self.kill()))
        limit.start()
        try:
            answer = self.process.stdout.readline()
        finally:
            limit.cancel()
        if not answer:
            try:
                why = f"no answer within {self.answer_s} s of" if late.is_set() else f"exit {self.process.wait(timeout=30)} of"
            except subprocess.TimeoutExpired:
                why = "no answer, and no end, of"
            self.kill()
            self.errors.seek(0)
            sys.exit(f"side_by_side: {why}: {' '.join(self.command)}\n{self.errors.read()[-2000:]}")
        return json.loads(answer)

    def kill(self):
        """Its ranks too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.errors.close()


def largest_difference(left, right):
    """Of two lists of losses, relative; over the steps that both have."""
    return max(abs(x - y) / abs(y) for x, y in zip(left, right))


def peer_peak(command, version):
    words = command[2:]
    kept = [i for i, word in enumerate(words) if not {word, words[i - 1]} & {"--steps", "--warmup"}]   # the peak is that of the third step
    program = hashlib.sha256(pathlib.Path(command[1]).read_bytes()).hexdigest()[:12]
    key = f"torch {version}, peer_fsdp.py {program}: " + " ".join(words[i] for i in kept)
    known = json.loads(PEAKS.read_text(encoding="utf-8")) if PEAKS.exists() else {}
    if key not in known:
        known = {k: peak for k, peak in known.items() if f"peer_fsdp.py {program}: " in k}   # what another program had is of no use
        known[key] = run(command + ["--memory"])["peak_bytes"]
        PEAKS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return known[key]


def measure(a, model, wrap, version):
    arms = commands(a, model, wrap)
    peers = {arm: Peer(command) for arm, command in arms.items() if not arm.startswith("ours")}
    rounds = []
    try:
        for peer in peers.values():
            peer.answer()
        for number in range(a.rounds):
            rounds.append({arm: peers[arm].run() if arm in peers else run(command) for arm, command in arms.items()})
            print(f"{model}, {wrap}, round {number + 1} of {a.rounds}: " + ", ".join(f"{arm} {r['step_ns'] / 1e6:.1f} ms" for arm, r in rounds[-1].items()),
                  file=sys.stderr, flush=True)
        for peer in peers.values():
            peer.end()
    finally:
        for peer in peers.values():
            peer.kill()
    rows = []
    for arm, command in arms.items():
        steps = [r[arm]["step_ns"] for r in rounds]
        ratios = [r[arm]["step_ns"] / r["ours"]["step_ns"] for r in rounds]
        alone = arm.endswith("one rank")
        peak = rounds[0][arm]["peak_bytes"] if arm.startswith("ours") else peer_peak(command, version)
        rows.append(dict(model=model, wrap=wrap, arm=arm, units=rounds[0][arm]["units"], step_ns=int(statistics.median(steps)), step_ns_of_rounds=steps,
                         cpu_ns=int(statistics.median(r[arm]["cpu_ns"] for r in rounds)), peak_bytes=peak,
                         ratio_to_ours=statistics.median(ratios), ratio_low=min(ratios), ratio_high=max(ratios),
                         loss_difference=None if alone else max(largest_difference(r[arm]["losses"], r["FSDP2"]["losses"]) for r in rounds), command=command))
    return rows


def first(text, key):
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(key)), "unknown")


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if os.path.exists("/proc/cpuinfo") else ""
    return dict(cpu=first(cpuinfo, "model name"), cores=os.cpu_count(), kernel=platform.release(), load_before=os.getloadavg()[0])


def revision():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def without_places(words):
    """Options less those that say where something lies."""
    places = {"--program", "--python", "-o", "--output"}
    return [word for i, word in enumerate(words) if word not in places and (i == 0 or words[i - 1] not in places)]


def markdown(report):
    m = report["machine"]
    shapes = "; ".join(f"{name}: " + ", ".join(f"{k} {v}" for k, v in MODELS[name].items()) for name in report["models"])
    lines = ["# Beside PyTorch's FSDP", "",
             f"{report['date']}, {m['cpu']}, {m['cores']} cores, load {m['load_before']:.2f} before; revision {report['revision']}, PyTorch {report['torch']}.",
             f"Llama ({shapes}; batch a rank), {WORLD} ranks, one thread each, fp32, AdamW.",
             f"Medians of {report['rounds']} interleaved rounds of {report['steps']} steps (medium: a quarter of them) after 3. Command: `{report['command']}`",
             "CPU: of rank 0's process, a step. Peak: bytes that the CPU allocator had given out at most, of one rank; PyTorch's over collectives",
             "that do nothing, in the third step. Losses: the largest relative difference to FSDP2's.", "",
             "| model | wrap | runtime | units | step | ratio to ours (min to max over rounds) | CPU | peak | losses |", "|---|---|---|---|---|---|---|---|---|"]
    for r in report["rows"]:
        loss = "" if r["loss_difference"] is None else f"{r['loss_difference']:.1e}"
        lines.append(f"| {r['model']} | {r['wrap']} | {r['arm']} | {r['units']} | {r['step_ns'] / 1e6:.1f} ms | {r['ratio_to_ours']:.2f} "
                     f"({r['ratio_low']:.2f} to {r['ratio_high']:.2f}) | {r['cpu_ns'] / 1e6:.1f} ms | {r['peak_bytes'] / 1e6:.2f} MB | {loss} |")
    return "\n".join(lines) + "\n"


def main():
    a = arguments()
    for needed in (a.program, a.python):
        if not os.access(needed, os.X_OK):
            sys.exit(f"side_by_side: no {needed}; run scripts/quickstart, and scripts/dependencies --full")
    load = machine()
    if load["load_before"] > 0.3 * load["cores"]:
        print(f"side_by_side: load {load['load_before']:.2f} on {load['cores']} cores: the numbers will be disturbed", file=sys.stderr)
    version = subprocess.run([a.python, "-c", "from importlib.metadata import version; print(version('torch'))"], capture_output=True, text=True, check=True).stdout.strip()
    rows = [row for model in a.model for wrap in a.wrap for row in measure(a, model, wrap, version)]
    report = dict(date=datetime.date.today().isoformat(), machine=load, revision=revision(), torch=version, rounds=a.rounds, steps=a.steps, models=a.model,
                  command=" ".join(["bench/side_by_side.py"] + without_places(sys.argv[1:])), rows=rows)
    for row in rows:
        row["command"] = [part.replace(a.program, "shardscope").replace(str(ROOT) + os.sep, "").replace(a.python, "python") for part in row["command"]]
    text = markdown(report)
    output = pathlib.Path(a.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
