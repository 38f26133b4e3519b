#!/usr/bin/env python3
"""page_rules.py SOURCE_FOLDER: fails unless each link of a page leads to a file, and to a heading of
it, each `folder/file.cpp:function` names a function of that file, the flows of architecture.md pass few
rooms, README.md is short, and the pages have no line over the limit that CONTRIBUTING.md gives. Each
problem is one line that says where and what.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/reference"))
from anchors import Anchors  # noqa: E402
from pages import cells_of, read_page, tables_in  # noqa: E402

PAGES = ("*.md", "docs/*.md", "docs/*/*.md", "runtime/*/*.md", "runtime/*/*/*.md", "examples/*/*.md")
README_LINES = 120
COLUMNS = 160
ROOMS = 5  # that a flow may pass
# Written before the limit was checked, or by a program. No page is to be added here.
WIDE = {"docs/benchmarks.md", "docs/checkpoints.md", "docs/data_parallel.md", "docs/failures.md",
        "docs/distributed_data_parallel.md", "docs/from_pytorch.md", "docs/gpu-results.md",
        "docs/launcher.md", "docs/launcher_output.md", "SECURITY.md", "runtime/checkpoint/format.md",
        "runtime/store/protocol.md"}


def anchors_of(path):
    anchors = Anchors()
    return {anchors.of(section.title) for section in read_page(path)}


def check_links(root, path):
    problems = []
    for section in read_page(path):
        for number, text in section.lines:
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
                place = f"{path.relative_to(root)}:{number}"
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                there = (path.parent / name).resolve() if name else path
                if not there.exists():
                    problems.append(f"{place}: no file {target}")
                elif anchor and anchor not in anchors_of(there):
                    problems.append(f"{place}: no heading for {target}")
    return problems


def check_functions(root, name, text):
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        for file, function in re.findall(r"`([\w/]+/\w+\.[ch]pp):(\w+)`", line):
            source = root / file
            if not source.exists():
                problems.append(f"{name}:{number}: no file {file}")
            elif not re.search(rf"\b{function}\(", source.read_text("utf-8")):
                problems.append(f"{name}:{number}: {file} has no {function}()")
    return problems


def room_of(file):
    """None for public headers, which several rooms share."""
    parts = file.split("/")
    if parts[0] == "include":
        return None
    return "/".join(parts[1:3]) if parts[1] == "backends" else parts[1]


def check_flows(name, sections):
    """Tables of steps: what happens, the rooms, the functions. A step without a room goes on in the last one."""
    problems = []
    for section in sections:
        for table in tables_in(section):
            if cells_of(table[0][1])[:2] != ["step", "room"]:
                continue
            passed, here = set(), set()
            for number, row in table[1:]:
                _, rooms, functions = cells_of(row)
                here = set(rooms.split(", ")) if rooms else here
                passed |= here
                for file in re.findall(r"`([\w/]+\.[ch]pp):\w+`", functions):
                    if room_of(file) not in here | {None}:
                        problems.append(f"{name}:{number}: {file} is not in {', '.join(sorted(here))}")
            if len(passed) > ROOMS:
                problems.append(f"{name}:{section.line}: {len(passed)} rooms, more than {ROOMS}")
    return problems


def check_lines(name, text):
    lines = text.rstrip("\n").split("\n")
    problems = []
    if name == "README.md" and len(lines) > README_LINES:
        problems.append(f"{name}: {len(lines)} lines, more than {README_LINES}")
    if name not in WIDE and not name.endswith(".zh.md"):
        problems += [f"{name}:{number}: {len(line)} columns, more than {COLUMNS}"
                     for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    return problems


def main(root):
    root = pathlib.Path(root).resolve()
    problems = []
    for path in [path for pattern in PAGES for path in sorted(root.glob(pattern))]:
        name = str(path.relative_to(root))
        text = path.read_text("utf-8")
        problems += (check_links(root, path) + check_functions(root, name, text)
                     + check_flows(name, read_page(path)) + check_lines(name, text))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
