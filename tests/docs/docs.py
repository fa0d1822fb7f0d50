"""README and docs as tests: every C block is a complete program that compiles without a warning, links
against the built static library and the test kit, runs in a directory of its own and exits 0.

An info string may say more: ```c run=help``` gives the program arguments, and a block ```output``` right
behind a program is what it must print. Blocks of other languages are not looked at. Besides: tables
that repeat something the program knows must agree with it, links must lead somewhere, and the README
shows examples/hello.c as it is.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPILE = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
LIMIT_S = 120


def documents():
    yield "README.md"
    yield "CONTRIBUTING.md"
    yield "CHANGELOG.md"
    for folder, subdirs, names in os.walk(os.path.join(ROOT, "docs")):
        subdirs.sort()
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks(path):
    """(line, info string, text, text between it and the block before) of each fenced block."""
    info, start, body, between = None, 0, [], []
    for number, line in enumerate(read(path).splitlines(), 1):
        fence = re.match(r"```(.*)$", line)
        if fence and info is None:
            info, start, body = fence.group(1).strip(), number, []
        elif fence:
            yield start, info, "\n".join(body) + "\n", "".join(between).strip()
            info, between = None, []
        elif info is not None:
            body.append(line)
        else:
            between.append(line)


def programs():
    """{path, line, text, args, output or None} of each C block."""
    for path in documents():
        last = None
        for line, info, text, between in blocks(path):
            words = info.split()
            if words[:1] == ["c"]:
                args = [w[4:].split(",") for w in words if w.startswith("run=")]
                last = {"path": path, "line": line, "text": text, "output": None,
                        "args": args[0] if args else []}
                yield last
            elif words[:1] == ["output"] and last is not None and len(between) < 200:
                last["output"] = text
            else:
                last = None


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          stdin=subprocess.DEVNULL, timeout=LIMIT_S, **options)


def libraries(build):
    """What a program that links the static library links besides, as pkg-config tells it."""
    with open(os.path.join(build, "stet.pc"), encoding="utf-8") as file:
        return re.search(r"^Libs.private: (.*)$", file.read(), re.M).group(1).split()


def try_program(build, program):
    with tempfile.TemporaryDirectory(prefix="stet-docs-") as folder:
        source, binary = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program["text"])
        done = run(["cc"] + COMPILE + ["-I" + os.path.join(ROOT, "include"), source, "-o", binary,
                                       os.path.join(build, "libstet-test.a"),
                                       os.path.join(build, "libstet.a")] + libraries(build))
        if done.returncode != 0:
            return done.stdout.decode(errors="replace").splitlines()
        done = run([binary] + program["args"], cwd=folder)
        printed = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            return ["exit status %d" % done.returncode] + printed.splitlines()
        if program["output"] is not None and printed != program["output"]:
            return ["prints:"] + printed.splitlines() + ["but the document says:"] + \
                program["output"].splitlines()
    return []


def settings(build):
    """The table of docs/operations.md and `help config` are the same."""
    done = run([os.path.join(build, "stet"), "help", "config", "--json"])
    text = read("docs/operations.md")
    for line in done.stdout.decode().splitlines():
        c = json.loads(line)
        row = "| `%s` | %d | %d | %d | %s | %s |" % (c["name"], c["default"], c["least"], c["most"],
                                                     c["unit"], c["text"])
        if row not in text:
            yield "docs/operations.md lacks: " + row
    if done.returncode != 0:
        yield "help config: exit status %d" % done.returncode


def exit_codes(build):
    done = run([os.path.join(build, "stet"), "help", "exit-codes", "--json"])
    text = read("docs/operations.md")
    for line in done.stdout.decode().splitlines():
        c = json.loads(line)
        row = "| %d | %s |" % (c["exit"], c["text"])
        if row not in text:
            yield "docs/operations.md lacks: " + row


def verbs(build):
    """Every verb is named in docs/operations.md."""
    done = run([os.path.join(build, "stet"), "help"])
    text = read("docs/operations.md")
    for line in done.stdout.decode().splitlines():
        verb = re.match(r"  ([a-z]+(?: [a-z]+)?)  ", line)
        if verb and "`%s" % verb.group(1) not in text:
            yield "docs/operations.md does not name the verb " + verb.group(1)


def codes(_build):
    """docs/semantics.md names every public result code."""
    listed = set(re.findall(r"X\((\w+), -\d+, \w+,", read("include/stet/errors.h")))
    text = read("docs/semantics.md")
    for name in sorted(listed):
        if "`STET_%s`" % name not in text:
            yield "docs/semantics.md does not name STET_" + name


def names(_build):
    """What users read names only functions and types that the public headers have."""
    known = "".join(read("include/stet/%s.h" % h) for h in ("app", "base", "context", "engine", "live", "move", "replay", "run", "schedule",
                                                               "test", "transaction"))
    for path in documents():
        if "decisions" in path or path == "CONTRIBUTING.md":
            continue
        for name in sorted(set(re.findall(r"\bstet_[a-z_]+\b", read(path)))):
            if not re.search(r"\b%s" % name, known):
                yield "%s: there is no %s" % (path, name)


def readme(_build):
    shown = [p["text"] for p in programs() if p["path"] == "README.md"]
    if shown[:1] != [read("examples/hello.c")]:
        yield "README.md does not show examples/hello.c as it is"


def links(_build):
    for path in documents():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(path)):
            if not target.startswith("http") and not os.path.exists(
                    os.path.join(ROOT, os.path.dirname(path), target)):
                yield "%s: %s leads nowhere" % (path, target)


def report(name, complaints):
    print(("ok " if not complaints else "not ok ") + name)
    for complaint in complaints:
        print("    | " + complaint)
    sys.stdout.flush()
    return not complaints


def main(argv):
    if len(argv) != 2:
        print("usage: docs.py BUILD_DIR", file=sys.stderr)
        return 2
    good = True
    for rule in (settings, exit_codes, verbs, codes, names, readme, links):
        good = report("docs_" + rule.__name__, list(rule(argv[1]))) and good
    for program in programs():
        name = "docs_%s_line_%d" % (program["path"].replace("/", "_"), program["line"])
        good = report(name, try_program(argv[1], program)) and good
    return 0 if good else 1


sys.exit(main(sys.argv))
