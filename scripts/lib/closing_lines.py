#!/usr/bin/env python3
"""ctest ... --output-junit FILE | closing_lines.py FILE: ctest's output as it comes, then the skipped tests with their reasons, and as the
last line ctest's own count of what passed."""
import collections
import re
import signal
import sys
import xml.etree.ElementTree as xml

CLOSING = re.compile(r"\d+% tests passed, \d+ tests? failed out of \d+")
SKIPPED = re.compile(r"\t\s*\d+ - (.+) \(Skipped\)$")
NOISE = re.compile(r"\[.*\]|Running main|Note: Google Test filter|Skipped$|.*: Skipped$|\s*$")


def reason(case):
    """What a skipped test said: after `skipped:` or below GoogleTest's line, without the place in the source."""
    said = (case.findtext("system-out") or "").strip()
    told = re.search(r"^skipped: (.+)", said, re.M)
    if told:
        return told[1]
    lines = [line.strip() for line in said.splitlines() if not NOISE.match(line.strip())]
    return lines[0] if lines else "without a reason"


def reasons(junit, names):
    """Reason -> those of the names, in the order of the tests."""
    said = {}
    try:
        said = {case.get("name"): reason(case) for case in xml.parse(junit).getroot().iter("testcase") if case.find("skipped") is not None}
    except (OSError, xml.ParseError):
        pass   # the caller gave ctest an --output-junit of his own
    found = collections.defaultdict(list)
    for name in names:
        found[said.get(name, "for a reason that the log tells")].append(name)
    return found


def names_text(names):
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def main(junit):
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # ctest ends by it, and this with ctest
    closing, head, skipped = "", "", []
    for line in sys.stdin:
        if CLOSING.match(line):
            closing = line
        elif line.startswith("The following tests did not run:"):
            head = line
        elif name := SKIPPED.match(line):
            skipped.append(name[1])   # told below, with the reason
        else:
            print(head + line if line.startswith("\t") else line, end="", flush=True)
            head = "" if line.startswith("\t") else head
    if skipped:
        print(f"Skipped, {len(skipped)} tests:")
        for why, names in reasons(junit, skipped).items():
            print(f"  {names_text(names)}: {why}")
    print(closing, end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
