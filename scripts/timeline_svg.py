#!/usr/bin/env python3
"""Draws one traced step of one rank as an SVG: what computes, what travels, and where compute waits for it.

  scripts/timeline_svg.py TRACE.json[.gz] [--rank 0] [--step N] [--title TEXT] > timeline.svg

TRACE is what `shardscope run --trace` or a sweep's traces/ folder holds. Made reports/images/timeline.svg.
"""
import argparse
import gzip
import html
import json
import re
import sys

LEFT, WIDTH, ROW, GAP = 128, 1000, 30, 12
COLOURS = {"forward": "#3b78c3", "backward": "#6f5bb5", "optimizer": "#6b7a8a", "copy": "#b9a14a", "all_gather": "#2f9e83", "reduce_scatter": "#d08a2d",
           "all_reduce": "#d08a2d", "exposed": "#cf3b3b"}
EXPOSED = re.compile(r"^exposed")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("trace")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--step", type=int, help="default: the last one")
    p.add_argument("--title", default="")
    return p.parse_args()


def read(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
    with opened as f:
        return [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]


def label(event):
    unit = event.get("args", {}).get("unit", "")
    number = re.search(r"(\[?\d[\d-]*\]?)$", unit)
    return number.group(1).strip("[]") if number else unit.rsplit(".", 1)[-1]


def bar(x0, x1, y, colour, text, title, height=ROW):
    wide = x1 - x0 > 8 * len(text) + 2
    inside = f'<text x="{(x0 + x1) / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" fill="#fff">{html.escape(text)}</text>' if wide and text else ""
    return (f'<g><title>{html.escape(title)}</title><rect x="{x0:.2f}" y="{y}" width="{max(x1 - x0, 0.4):.2f}" height="{height}" rx="2" fill="{colour}" '
            f'stroke="#fff" stroke-width="0.6"/>{inside}</g>')


def main():
    a = arguments()
    events = [e for e in read(a.trace) if e["pid"] == 1000 * (a.rank + 1)]
    steps = sorted((e for e in events if e["cat"] == "step"), key=lambda e: e["ts"])
    if not steps:
        sys.exit(f"timeline_svg: no step of rank {a.rank} in {a.trace}")
    step = next((e for e in steps if e["args"]["step"] == a.step), None) if a.step is not None else steps[-1]
    if step is None:
        sys.exit(f"timeline_svg: no step {a.step} in {a.trace}; there are {[e['args']['step'] for e in steps]}")
    begin, length = step["ts"], step["dur"]

    def x(t):
        return LEFT + WIDTH * min(max((t - begin) / length, 0.0), 1.0)

    rows = {"compute": ["compute", "optimizer", "copy"], "all-gather": ["all_gather"], "reduce-scatter": ["reduce_scatter", "all_reduce", "other_collective"]}
    inside = [e for e in events if e["ts"] < begin + length and e["ts"] + e["dur"] > begin]
    out, y, exposed = [], 34, 0.0
    for name, kinds in rows.items():
        out.append(f'<text x="{LEFT - 10}" y="{y + ROW / 2 + 4}" text-anchor="end" class="t">{name}</text>')
        for e in inside:
            if e["cat"] in kinds:
                colour = COLOURS.get(e["cat"]) or COLOURS.get(e["args"].get("pass"), COLOURS["backward"])
                out.append(bar(x(e["ts"]), x(e["ts"] + e["dur"]), y, colour, "" if e["cat"] == "copy" else label(e), f'{e["name"]}: {e["dur"] / 1000:.3f} ms'))
        y += ROW + GAP
    out.append(f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end" class="t" style="fill:{COLOURS["exposed"]}">exposed</text>')
    for e in inside:
        if e["cat"] == "partition" and EXPOSED.match(e["name"]):
            exposed += e["dur"]
            out.append(bar(x(e["ts"]), x(e["ts"] + e["dur"]), y, COLOURS["exposed"], "", f'{e["name"]}: {e["dur"] / 1000:.3f} ms', 18))
            out.append(f'<rect x="{x(e["ts"]):.2f}" y="34" width="{max(x(e["ts"] + e["dur"]) - x(e["ts"]), 0.4):.2f}" height="{y - 34}" fill="{COLOURS["exposed"]}" opacity="0.13"/>')
    y += 18 + 26
    legend = [("forward", "forward"), ("backward", "backward"), ("optimizer", "optimizer"), ("copy", "copy"), ("all-gather", "all_gather"),
              ("reduce-scatter", "reduce_scatter"), ("exposed communication", "exposed")]
    at = LEFT
    for text, key in legend:
        out.append(f'<rect x="{at}" y="{y - 10}" width="11" height="11" rx="2" fill="{COLOURS[key]}"/><text x="{at + 16}" y="{y}" class="t">{text}</text>')
        at += 34 + 7 * len(text)
    title = (a.title + ": " if a.title else "") + f"one step of {length / 1000:.1f} ms, of which {exposed / 1000:.1f} ms wait for communication"
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 12} {y + 12}" font-family="system-ui, sans-serif" font-size="13">'
          '<style>.t{fill:#444}@media(prefers-color-scheme:dark){.t{fill:#bbb}}</style>'
          f'<text x="{LEFT}" y="20" class="t" font-size="14">{html.escape(title)}</text>' + "".join(out) + "</svg>")


if __name__ == "__main__":
    main()
