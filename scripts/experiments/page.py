"""The page of all experiments: a table of verdicts, then for each claim its cases as bars of time and memory. One file, no network."""
import html

import results

COLOURS = {"compute": "#7f93ad", "overlapped": "#2f9e83", "exposed_all_gather_forward": "#cf3b3b", "exposed_all_gather_backward": "#e0762f",
           "exposed_reduce_scatter": "#b8325f", "exposed_other": "#8c2f8c", "copy": "#b9a14a", "host": "#5b6bb5", "memory_wait": "#a06a3c",
           "optimizer": "#6b7a8a", "idle": "#c9ced6"}
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --soft: #68727f; --line: #d8dde4 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181e; --soft: #98a3b1; --line: #333b46 } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1080px; margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem } p { margin: .3rem 0 } a { color: inherit } .soft { color: var(--soft) }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.verdict { font-weight: 600; white-space: nowrap } .FAIL { color: #cf3b3b } .shows { color: #2f9e83 } .differs { color: #c98a1b }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: var(--ink) } svg .soft { fill: var(--soft) }
.key span { display: inline-block; margin-right: 1rem; white-space: nowrap } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .35em }
"""
LABEL, TIME, MEMORY, ROW = 300, 460, 200, 24


def page(chapters, environment):
    """chapters: (experiment, finding, cases, link to the report)."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
             f"<title>shardscope experiments</title><style>{STYLE}</style><h1>Experiments</h1><p class=soft>{html.escape(environment)}</p>",
             "<table><tr><th>experiment<th>claim<th>verdict<th>number"]
    for experiment, finding, _, _ in chapters:
        parts.append(f"<tr><td><a href='#{experiment.name}'>{experiment.name}</a><td>{html.escape(experiment.claim)}<td>{_verdict(finding)}"
                     f"<td>{html.escape(finding.number)}")
    parts.append("</table><p class=key>" + "".join(f"<span><i style='background:{colour}'></i>{c.replace('_', ' ')}</span>" for c, colour in COLOURS.items()) +
                 "</p><p class=soft>Left: the calmest traced step of a case, divided into its classes. Right: the peak of a rank's memory.</p>")
    for experiment, finding, cases, report in chapters:
        parts.append(f"<h2 id='{experiment.name}'>{html.escape(experiment.claim)}</h2><p>{_verdict(finding)}: {html.escape(finding.number)}. "
                     f"{html.escape(finding.text)}.</p>{chart(cases)}<p><a href='{html.escape(report)}'>its report</a></p>")
    return "\n".join(parts) + "</html>\n"


def _verdict(finding):
    return f"<span class='verdict {finding.verdict}'>{finding.verdict}</span>"


def chart(cases):
    """A row for each case: its step in classes, its peak; or how it ended."""
    longest = max((sum(c.calmest().values()) for c in cases if c.steps), default=1)
    highest = max((c.peak_bytes for c in cases), default=1) or 1
    rows = []
    for i, case in enumerate(cases):
        y = i * ROW
        rows.append(f"<text x='{LABEL - 10}' y='{y + 15}' text-anchor='end'>{html.escape(_short(case.name()))}</text>")
        if case.steps:
            rows += _bar(case, y, longest)
        else:
            rows.append(f"<text x='{LABEL}' y='{y + 15}' fill='#cf3b3b'>{html.escape(case.status)}<title>{html.escape(case.reason)}</title></text>")
        if case.peak_bytes:
            width = MEMORY * case.peak_bytes / highest
            rows.append(f"<rect x='{LABEL + TIME + 90}' y='{y + 4}' width='{width:.1f}' height='{ROW - 9}' fill='#7f93ad'/>"
                        f"<text class=soft x='{LABEL + TIME + 96 + width:.1f}' y='{y + 15}'>{_size(case.peak_bytes)}</text>")
    return (f"<svg viewBox='0 0 {LABEL + TIME + MEMORY + 170} {len(cases) * ROW + 4}' role='img' "
            f"aria-label='step time and peak memory of {len(cases)} cases'>{''.join(rows)}</svg>")


def _bar(case, y, longest):
    step, x, out = case.calmest(), float(LABEL), []
    for c in results.CLASSES:
        width = TIME * step[c] / longest
        if width > 0:
            out.append(f"<rect x='{x:.1f}' y='{y + 4}' width='{width:.2f}' height='{ROW - 9}' fill='{COLOURS[c]}'>"
                       f"<title>{c.replace('_', ' ')}: {step[c] / 1e6:.2f} ms</title></rect>")
        x += width
    return out + [f"<text class=soft x='{x + 6:.1f}' y='{y + 15}'>{sum(step.values()) / 1e6:.1f} ms</text>"]


def _short(text):
    return text if len(text) <= 46 else text[:45] + "…"


def _size(n):
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.1f} MiB"
