#!/usr/bin/env python3
"""settle_environment.py MADE ENV: a virtual environment that was made at MADE lies at ENV now; the scripts in its bin/ are told.

pip writes the interpreter's path into the first lines of each console script, in two forms: `#!PATH`, and for a path that the kernel
does not take there (spaces, more than 127 bytes) a line of sh that calls it. The second form does for every path and is what is written.
bin/activate and its kind name the folder as a value, quoted where the Python that made them does so.
"""
import pathlib
import re
import shlex
import sys

made, environment = sys.argv[1], str(pathlib.Path(sys.argv[2]).absolute())
INTERPRETER = re.compile(r"\A#!(?:/bin/sh\n'''exec' \"?([^\"\n]+?)\"? \"\$0\" \"\$@\"\n' '''|([^\n]+))\n")
VALUE = re.compile(rf"(\bVIRTUAL_ENV[= ])(['\"]?){re.escape(made)}\2(?=\s|;|$)", re.M)


def settled(text):
    head = INTERPRETER.match(text)
    interpreter = (head[1] or head[2]) if head else ""
    if interpreter.startswith(made + "/bin/"):
        name = interpreter.rpartition("/")[2]
        return f"#!/bin/sh\n'''exec' \"{environment}/bin/{name}\" \"$0\" \"$@\"\n' '''\n" + text[head.end():]
    prompt = [f"({pathlib.Path(p).name}) " for p in (made, environment)]
    return VALUE.sub(lambda found: found[1] + shlex.quote(environment), text).replace(*prompt)


for path in sorted((pathlib.Path(environment) / "bin").iterdir()):
    if path.is_symlink() or not path.is_file():
        continue
    try:
        before = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        continue   # a program, not a script
    after = settled(before)
    if after != before:
        path.write_text(after, encoding="utf-8")   # in place: its mode stays
