#!/usr/bin/env python3
"""Lay out what has a line of more than 100 columns, and nothing else: tools/wrap.py FILE…

Code goes through clang-format, only the statements concerned. Comments are filled again from the long line
to the end of its paragraph; the lines between sections are cut. What is left, tests/tidy names.
"""

import re
import subprocess
import sys
import textwrap

COLUMNS = 100


def long_lines(path):
    with open(path, encoding="utf-8") as file:
        return [n for n, line in enumerate(file.read().split("\n"), 1) if len(line) > COLUMNS]


def wrap_code(path):
    for _ in range(3):  # breaking one line can make another one long
        numbers = long_lines(path)
        if numbers and path.endswith(".c"):
            subprocess.run(["clang-format", "-i"] + ["--lines=%d:%d" % (n, n) for n in numbers] + [path],
                           check=True)


def section(line):
    """A line between sections has its dashes cut."""
    match = re.match(r"(\s*/\* [-=]{4} .*? )[-=]+( \*/)$", line)
    return match and match.group(1) + line[len(match.group(1)):-3].strip()[
        :COLUMNS - len(match.group(1)) - 3] + match.group(2)


def paragraph(lines, at):
    """Lines at… of one comment that read as one paragraph: (prefix of its first, of the others, count)."""
    first = re.match(r"(\s*)(/\*\*?|\*) ( *)(?=\S)", lines[at])
    if first is None:
        return None
    star = first.group(1) + (" * " if first.group(2) != "*" else "* ") + first.group(3)
    count = 1
    while "*/" not in lines[at + count - 1]:
        line = lines[at + count]
        if not line.startswith(star) or not line[len(star):].strip() or line[len(star)] in " -@*|":
            break
        count += 1
    return first.group(0), star, count


def wrap_comments(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    at = 0
    while at < len(lines):
        if len(lines[at]) > COLUMNS:
            cut, found = section(lines[at]), paragraph(lines, at)
            if cut:
                lines[at] = cut
            elif found and not re.search(r"\S.*\S\s{2,}\S", lines[at][len(found[0]):]):
                first, star, count = found
                text = " ".join([lines[at][len(first):]] + [l[len(star):] for l in lines[at + 1:at + count]])
                # A lone "*/" is no word of the text.
                text = re.sub(r"\s+\*/$", "\u00a0*/", text)
                filled = textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=star,
                                       break_long_words=False, break_on_hyphens=False)
                lines[at:at + count] = [l.replace("\u00a0", " ") for l in filled]
        at += 1
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


for name in sys.argv[1:]:
    wrap_code(name)
    if long_lines(name):
        wrap_comments(name)
