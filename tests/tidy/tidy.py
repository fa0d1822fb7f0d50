"""The house rules as tests: layers, purity of the core, banned functions, paths, exported symbols.

Each rule is a function that yields complaints, one line each; no complaint, and the rule is ok.
Comments and strings are blanked out before code is searched, so prose may name what code may not.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Who may include whom (besides itself): dependencies point inward.
LAYERS = {
    "util": set(),
    "platform": {"util"},
    "core": {"util"},
    "exec": {"core", "util", "platform"},
    "store": {"core", "util", "platform"},
    "queue": {"core", "util", "platform"},
    "engine": {"exec", "store", "queue", "core", "util", "platform"},
    "server": {"engine", "util", "platform"},
    "cli": {"server", "util", "platform"},
    # The users' test kit: nothing of the library includes it.
    "testkit": {"cli", "engine", "exec", "store", "core", "util", "platform"},
}
# Single files that may reach outward, each with its reason.
LAYER_EXCEPTIONS = {
    # The simulator's threads are coroutines; co.h itself depends on nothing but util.
    ("src/platform/sim.c", "exec/co.h"),
}
# What core may include: nothing that does I/O, reads a clock or takes a lock.
CORE_HEADERS = {
    "assert.h", "ctype.h", "errno.h", "float.h", "inttypes.h", "limits.h", "math.h", "stdalign.h",
    "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h",
    "stdnoreturn.h", "string.h",
}
CORE_BANNED = {
    "FILE", "stdin", "stdout", "stderr", "printf", "fprintf", "vprintf", "vfprintf", "puts", "putchar",
    "fopen", "getenv", "system", "time", "clock", "perror",
}
PUBLIC_HEADERS = {
    "float.h", "inttypes.h", "limits.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "string.h",
}
BANNED = ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "rand")
SLEEPS = ("sleep", "usleep", "nanosleep", "clock_nanosleep", "thrd_sleep")
# Top directories of somebody's machine. Put together here so that this file passes its own rule.
MACHINE_DIRS = ("home", "root", "work", "Users")

# Not laid out yet: run tools/wrap.py over one of them when nobody else is at work there, and take it out.
LONG_LINES_STILL = ("src/core/", "src/engine/", "src/exec/", "src/platform/", "src/store/",
                    "tests/support/fault_vfs", "tests/unit/run_test.c",
                    "tests/fault/api_", "tests/sim/")

CODE_DIRS = ("include", "src", "tests", "bench", "examples", "fuzz")
TEXT_DIRS = CODE_DIRS + ("cmake", "tools", "docs", ".ci")


# ---- reading the tree --------------------------------------------------------------------------

def files(dirs, endings):
    for top in dirs:
        for folder, subdirs, names in os.walk(os.path.join(ROOT, top)):
            subdirs[:] = sorted(d for d in subdirs if d != "__pycache__")
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code(path):
    """The file without comments and strings; lines keep their numbers."""
    return TOKENS.sub(blank, read(path))


def grep(text, pattern):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(pattern, line)
        if match:
            yield number, match


def calls(path, names):
    """Calls of plain functions, not of members that have the same name."""
    pattern = r"(?<![\w.])(?<!->)(%s)\s*\(" % "|".join(names)
    for number, match in grep(code(path), pattern):
        yield "%s:%d: %s" % (path, number, match.group(1))


def includes(path):
    for number, match in grep(read(path), r'^\s*#\s*include\s*([<"])([^>"]+)[>"]'):
        yield number, match.group(1), match.group(2)


def layer_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else None


# ---- the rules ---------------------------------------------------------------------------------

def layers_point_inward():
    for path in files(("src",), (".c", ".h", ".S")):
        layer = layer_of(path)
        if layer not in LAYERS:
            yield "%s: src/%s is not in the house plan" % (path, layer or "")
            continue
        for number, quote, name in includes(path):
            if quote != '"' or (path, name) in LAYER_EXCEPTIONS:
                continue
            other = name.split("/")[0] if "/" in name else layer
            if other != layer and other not in LAYERS[layer]:
                yield '%s:%d: %s must not include "%s"' % (path, number, layer, name)


def core_is_pure():
    for path in files(("src/core",), (".c", ".h")):
        for number, quote, name in includes(path):
            if quote == "<" and name not in CORE_HEADERS and not name.startswith("stet/"):
                yield "%s:%d: core must not include <%s>" % (path, number, name)
        for number, match in grep(code(path), r"(?<![\w.])(?<!->)(%s)\s*[(*;,)]" % "|".join(CORE_BANNED)):
            # A name of the core's own may be one of these; a use of C's is a call or a FILE.
            word = match.group(1)
            if word in ("time", "clock", "system") and not match.group(0).endswith("("):
                continue
            yield "%s:%d: core must not use %s" % (path, number, word)


def public_headers_stand_alone():
    for path in files(("include",), (".h",)):
        for number, quote, name in includes(path):
            is_ours = name == "stet.h" or name.startswith("stet/")
            if quote != "<" or not (is_ours or name in PUBLIC_HEADERS):
                yield "%s:%d: a public header must not include %s" % (path, number, name)


def banned_functions_are_not_called():
    for path in files(CODE_DIRS, (".c", ".h")):
        yield from calls(path, BANNED)


def tests_do_not_sleep():
    for path in files(("tests",), (".c", ".h")):
        yield from calls(path, SLEEPS)
    for path in files(("tests",), (".sh",)):
        for number, _ in grep(read(path), r"^\s*(?:.*[;&|]\s*)?sleep\s+[\d$]"):
            yield "%s:%d: sleep" % (path, number)


def no_machine_paths():
    pattern = r"(?<![\w.$}{*])/(?:%s)/" % "|".join(MACHINE_DIRS)
    endings = (".c", ".h", ".S", ".sh", ".py", ".cmake", ".in", ".txt", ".md", "run")
    top = [n for n in ("Makefile", "CMakeLists.txt", "README.md", "CHANGELOG.md")
           if os.path.exists(os.path.join(ROOT, n))]
    for path in list(files(TEXT_DIRS, endings)) + top:
        for number, match in grep(read(path), pattern):
            yield "%s:%d: %s" % (path, number, match.group(0))


def no_unfinished_work():
    for path in files(("src", "include"), (".c", ".h", ".S")):
        for number, match in grep(read(path), r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b"):
            yield "%s:%d: %s" % (path, number, match.group(1))


def lines_have_at_most_100_columns():
    """tools/wrap.py lays them out."""
    for path in files(("src", "tests"), (".c", ".h", ".inc")):
        if path.startswith(LONG_LINES_STILL):
            continue
        for number, line in enumerate(read(path).split("\n"), 1):
            if len(line) > 100:
                yield "%s:%d: %d columns" % (path, number, len(line))


def files_say_what_they_own():
    for path in files(("src", "include"), (".c", ".h", ".S")):
        if not read(path).lstrip().startswith("/*"):
            yield "%s: does not open with a comment" % path


def only_stet_symbols_are_exported(build):
    library = os.path.join(build, "libstet.so")
    for line in run("nm", "-D", "--defined-only", library):
        name = line.split()[-1].split("@")[0]
        if not re.match(r"stet_[^_]", name):
            yield "libstet.so exports %s" % name
    # A static library hides nothing: each of its names is one that the user's program cannot have.
    for library in ("libstet.a", "libstet-test.a"):
        for line in run("nm", "-g", "--defined-only", os.path.join(build, library)):
            fields = line.split()
            if len(fields) == 3 and not fields[2].startswith("stet_"):
                yield "%s exports %s" % (library, fields[2])


def no_global_mutable_state(build):
    """Several engines live in one process. Thread-local data is another section and allowed."""
    member = "?"
    for line in run("objdump", "-t", os.path.join(build, "libstet.a")) + \
            run("objdump", "-t", os.path.join(build, "libstet-test.a")):
        if ": " in line and "file format" in line:
            member = line.split(":")[0]
        match = re.search(r" O (\.bss|\.data)(\.(?!rel\.ro)\S+)?\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", line)
        if match:
            yield "%s: %s is a writable global" % (member, match.group(3))


MUTANT_HEADER = "src/util/mutant.h"


def mutants():
    """The names of the planted bugs."""
    return re.findall(r"^\s*X\((\w+), ", read(MUTANT_HEADER), re.M)


def every_mutant_is_planted():
    """Without this a typing error would be found only by `make mutants`."""
    listed, planted = mutants(), {}
    for path in files(("src",), (".c", ".h")):
        for number, match in grep(code(path), r"STET__MUTANT\((\w+)\)"):
            if path != MUTANT_HEADER:
                planted.setdefault(match.group(1), "%s:%d" % (path, number))
    if len(listed) < 25:
        yield "%s: %d mutants, 25 are promised" % (MUTANT_HEADER, len(listed))
    for name in sorted(set(listed)):
        if listed.count(name) > 1:
            yield "%s: %s is there twice" % (MUTANT_HEADER, name)
        if name not in planted:
            yield "%s: %s is planted nowhere" % (MUTANT_HEADER, name)
    for name in sorted(set(planted) - set(listed)):
        yield "%s: %s is not in %s" % (planted[name], name, MUTANT_HEADER)


def no_mutant_is_released(build):
    """Neither a name nor a symbol of a planted bug in what is installed."""
    names = mutants() + ["stet__mutant", "STET_MUTANT"]
    for name in ("libstet.so", "libstet.a", "stet"):
        with open(os.path.join(build, name), "rb") as file:
            content = file.read()
        words = set(re.findall(rb"\w{4,}(?![\w.])", content))
        found = [n for n in names if n.encode() in words]
        if found:
            yield "%s has %s in it" % (name, ", ".join(found))
    for line in run("nm", os.path.join(build, "libstet.a")):
        if "mutant" in line:
            yield "libstet.a: %s" % line


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr.decode().strip()))
    return done.stdout.decode().splitlines()


# ---- the program -------------------------------------------------------------------------------

def check(rule, *args):
    name = "tidy_" + rule.__name__
    try:
        complaints = list(rule(*args))
    except RuntimeError as failure:
        complaints = [str(failure)]
    print("%s %s" % ("not ok" if complaints else "ok", name))
    for complaint in complaints:
        print("    " + complaint)
    return not complaints


def main(argv):
    rules = [layers_point_inward, core_is_pure, public_headers_stand_alone,
             banned_functions_are_not_called, tests_do_not_sleep, no_machine_paths,
             no_unfinished_work, lines_have_at_most_100_columns, files_say_what_they_own,
             every_mutant_is_planted]
    results = [check(rule) for rule in rules]
    if len(argv) > 1:
        results.append(check(only_stet_symbols_are_exported, argv[1]))
        results.append(check(no_global_mutable_state, argv[1]))
        results.append(check(no_mutant_is_released, argv[1]))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
