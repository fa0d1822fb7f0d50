#!/usr/bin/env python3
"""The table of `make coverage`: branches and lines of src/ from llvm-cov's JSON, uncovered branches of
src/core (or of what LIST names: LIST=src/engine/dlq.c) one by one, and the goals. A branch is one outcome
of one condition; those inside assertions do not count, because what cannot happen has no test, nor do
those behind a planted bug (src/util/mutant.h), which this build does not have."""
import collections
import json
import os
import re
import sys

# Percentage of branches covered: below the floor it fails; floors are raised with what is reached.
GOALS = {  # part: (floor, goal)
    "src/core/": (99.5, 100.0),
    "src/": (90.0, 90.0),
}
LISTED = os.environ.get("LIST") or "src/core/"
MUTANT = "STET__MUTANT("
MUTANT_GUARD = re.compile(r"^(\s*)if \(STET__MUTANT\(\w+\)(\)| && )")
ASSERTION = re.compile(r"\b(assert|abort|stet__must|STET__ASSERT)\s*\(")


class Lines:
    """Source lines, read once a file."""

    def __init__(self):
        self.files = {}
        self.mutants = {}

    def get(self, path, line):
        if path not in self.files:
            with open(path, encoding="utf-8") as f:
                self.files[path] = f.read().split("\n")
            self.mutants[path] = mutant_lines(self.files[path])
        return self.files[path][line - 1]

    def is_mutant(self, path, line, column):
        """Behind a planted bug, or its own negation."""
        text = self.get(path, line)
        return (MUTANT in text[:column - 1] or text[column - 1:].startswith("!" + MUTANT)
                or line in self.mutants[path])


def mutant_lines(lines):
    """What `if (STET__MUTANT(x)) …` guards: a block, or one statement."""
    found = set()
    for number, text in enumerate(lines, 1):
        guard = MUTANT_GUARD.match(text)
        if not guard:
            continue
        end = guard.group(1) + "}" if text.endswith("{") else None
        for behind in range(number, len(lines)):
            found.add(behind + 1)
            if lines[behind].startswith(end) if end else lines[behind].endswith(";"):
                break
    return found


def branches_of(entry, lines):
    """{(line, column): [taken when true, taken when false]}, assertions left out."""
    found = collections.OrderedDict()
    for b in entry["branches"]:
        line, column, _, _, on_true, on_false = b[:6]
        if ASSERTION.search(lines.get(entry["filename"], line)):
            continue
        if on_true + on_false == 0 and lines.is_mutant(entry["filename"], line, column):
            continue
        counts = found.setdefault((line, column), [0, 0])
        counts[0] += on_true
        counts[1] += on_false
    return found


def percent(part, whole):
    return 100.0 if whole == 0 else 100.0 * part / whole


def main():
    data = json.load(open(sys.argv[1], encoding="utf-8"))["data"][0]
    root = sys.argv[2]
    judge = "--no-goals" not in sys.argv
    lines = Lines()
    rows, missed = [], []
    for entry in data["files"]:
        name = os.path.relpath(entry["filename"], root)
        if not name.startswith("src/"):
            continue
        found = branches_of(entry, lines)
        taken = sum((t > 0) + (f > 0) for t, f in found.values())
        summary = entry["summary"]["lines"]
        rows.append((name, taken, 2 * len(found), summary["covered"], summary["count"]))
        if name.startswith(LISTED):
            for (line, column), (t, f) in found.items():
                for taken_times, outcome in ((t, "true"), (f, "false")):
                    if taken_times == 0:
                        text = lines.get(entry["filename"], line).strip()
                        missed.append(f"  {name}:{line}:{column}: never {outcome}: {text}")

    print(f"{'file':44} {'branches':>15} {'':>7} {'lines':>13}")
    total = [0, 0, 0, 0]
    for name, taken, branches, covered, count in sorted(rows):
        total = [a + b for a, b in zip(total, (taken, branches, covered, count))]
        print(f"{name:44} {taken:7}/{branches:<7} {percent(taken, branches):6.1f}% {covered:6}/{count:<6}"
              f" {percent(covered, count):5.1f}%")
    print(f"{'all':44} {total[0]:7}/{total[1]:<7} {percent(total[0], total[1]):6.1f}% {total[2]:6}/{total[3]:<6}"
          f" {percent(total[2], total[3]):5.1f}%")
    if missed:
        print(f"\nbranches of {LISTED} that were not taken:")
        print("\n".join(missed))

    status = 0
    for prefix, (floor, goal) in GOALS.items():
        part = [r for r in rows if r[0].startswith(prefix)]
        reached = percent(sum(r[1] for r in part), sum(r[2] for r in part))
        print(f"goal: {goal:.1f}% of the branches of {prefix}: {reached:.1f}%"
              f"{', reached' if reached >= goal else ''}; it fails below {floor:.1f}%")
        if reached < floor:
            status = 1
    return status if judge else 0


sys.exit(main())
