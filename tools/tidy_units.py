#!/usr/bin/env python3
"""For tidy.sh: few translation units that hold all sources to check, as most of a check's time goes to headers.

    tidy_units.py BUILD_DIR SCRATCH_DIR <SOURCES

Reads paths of sources, one a line, and BUILD_DIR/compile_commands.json; those that it has no command for (other
processors, absent backends, files that are gone) are left out. Up to 40 that are compiled in the same way become one
unit in SCRATCH_DIR, but for what uses a name for something else. Prints the units, the largest first, and writes
their compile_commands.json and, as `sources`, the sources that are checked.
"""
import collections
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

MOST_SOURCES = 40


def sources_of(unit):
    """Those that a unit of CMake's includes; else it is one itself."""
    if "/Unity/" not in unit:
        return [unit]
    with open(unit) as stream:
        return re.findall(r'^#include "(.*)"$', stream.read(), re.M)


def size_of(units):
    return sum(len(sources_of(unit)) for unit in units)


def compiler_of(command):
    """The compiler with its flags, by which no warning is an error: clang-tidy says errors whatever its checks are."""
    words = shlex.split(command)
    while os.path.basename(words[0]) == "env" or "=" in words[0] or words[0].endswith("ccache"):
        words.pop(0)  # what starts the compiler
    for option in ("-o", "-MT", "-MF", "-c"):
        if option in words:
            at = words.index(option)
            del words[at:at + 2]
    return [word for word in words if word not in ("-MD", "-Werror")]


def together(units, compiler, directory):
    """Lists of units that compile as one."""
    if len(units) == 1:
        return [units]
    text = "".join(f'#include "{unit}"\n' for unit in units)
    check = subprocess.run([*compiler, "-fsyntax-only", "-w", "-x", "c++", "-"],
                           cwd=directory, input=text, capture_output=True, text=True)
    if check.returncode == 0:
        return [units]
    first = re.search(r"^(/[^:\n]+):\d+:\d+: (fatal )?error:", check.stderr, re.M)
    apart = [unit for unit in units if first and first[1] in sources_of(unit)]
    if not apart or len(apart) == len(units):
        return [[unit] for unit in units]
    rest = [unit for unit in units if unit not in apart]
    return together(rest, compiler, directory) + [apart]


def main():
    build, scratch = (os.path.realpath(a) for a in sys.argv[1:3])
    wanted = {line.strip() for line in sys.stdin}
    groups = collections.defaultdict(list)
    checked = set()
    with open(os.path.join(build, "compile_commands.json")) as stream:
        commands = json.load(stream)
    for command in commands:
        unit = os.path.join(command["directory"], command["file"])
        hits = wanted.intersection(sources_of(unit)) - checked if unit.endswith((".cpp", ".cxx")) else ()
        if hits:
            checked.update(hits)
            lists = groups[tuple(compiler_of(command["command"])), command["directory"]]
            if not lists or size_of(lists[-1]) + len(sources_of(unit)) > MOST_SOURCES:
                lists.append([])
            lists[-1].append(unit)
    tasks = [(units, *key) for key, lists in groups.items() for units in lists]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # of threads that wait for compilers
        results = pool.map(lambda task: together(*task), tasks)
    merged = []
    for (_, words, directory), lists in zip(tasks, results):
        for units in lists:
            path = os.path.join(scratch, f"{len(merged)}.cpp")
            with open(path, "w") as stream:
                stream.writelines(f'#include "{unit}"\n' for unit in units)
            merged.append((size_of(units), {"directory": directory, "file": path, "arguments": [*words, "-c", path]}))
    with open(os.path.join(scratch, "compile_commands.json"), "w") as stream:
        json.dump([command for _, command in merged], stream)
    with open(os.path.join(scratch, "sources"), "w") as stream:
        stream.writelines(f"{source}\n" for source in sorted(checked))
    for _, command in sorted(merged, key=lambda entry: -entry[0]):
        print(command["file"])


main()
