#!/usr/bin/env python3
"""commands.py: the commands that pages show, in blocks ```sh, against commands.map.

commands.py check SOURCE_FOLDER          fails unless each command is in the map, and nothing else
commands.py run SOURCE_FOLDER BINARIES   runs those that the map says are run, in SOURCE_FOLDER

A command is a line of a block, without what stands behind two blanks and a `#`. When it is run,
BINARIES is the build folder, whatever its name: it takes the place of `build`, and its bin/ is the
first of PATH. A command has to end with exit code 0 within LIMIT seconds and to print what the map
says that it prints.
"""
import os
import pathlib
import re
import subprocess
import sys

from pages import blocks_of

PAGES = ("*.md", "docs/*.md", "docs/*/*.md")
LIMIT = 120  # under sanitizers and beside other tests; what takes 10 s by itself is not to be run


def parse(text):
    """{command: (line, None or the reason why it is not run, [texts that it prints])}."""
    commands, last = {}, None
    for number, line in enumerate(text.split("\n"), 1):
        entry = re.match(r"(run|not run): (.+)", line)
        detail = re.match(r"  (because|prints): (.+)", line)
        if entry:
            last = [number, None if entry[1] == "run" else "", []]
            if entry[2] in commands:
                raise SystemExit(f"commands.map:{number}: twice: {entry[2]}")
            commands[entry[2]] = last
        elif detail and last and detail[1] == "because" and last[1] is not None:
            last[1] = detail[2]
        elif detail and last and detail[1] == "prints" and last[1] is None:
            last[2].append(detail[2])
        elif line and not line.startswith("#"):
            raise SystemExit(f"commands.map:{number}: neither a command nor what belongs to it: {line}")
    return commands


def commands_in(page):
    """(line, command) for each that a page shows."""
    found = []
    for block in blocks_of(page):
        if block.language != "sh":
            continue
        for offset, line in enumerate(block.code.split("\n"), 1):
            command = re.split(r"(?:^|\s\s+)#", line)[0].strip()
            if command:
                found.append((block.line + offset, command))
    return found


def pages_below(root):
    return [page for pattern in PAGES for page in sorted(root.glob(pattern))
            if not page.name.endswith(".zh.md")]


def check(shown, commands):
    """shown: (place, command)."""
    problems = [f"{place}: not in tests/docs/commands.map: {command}" for place, command in shown
                if command not in commands]
    there = {command for _, command in shown}
    for command, (line, reason, _) in commands.items():
        if command not in there:
            problems.append(f"commands.map:{line}: no page shows {command}")
        if reason == "":
            problems.append(f"commands.map:{line}: does not say why it is not run")
    return problems


def run(command, prints, root, binaries):
    """None, or what was wrong."""
    binaries = pathlib.Path(binaries).resolve()
    environment = {**os.environ, "PATH": f"{binaries}/bin:{os.environ['PATH']}"}
    words = re.sub(r"(?<![\w./-])build(?=/|\s|$)", str(binaries), command)
    try:
        done = subprocess.run(["bash", "-c", words], cwd=root, env=environment, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT} s"
    if done.returncode != 0:
        return f"exit code {done.returncode}:\n{done.stdout}"
    missing = [text for text in prints if text not in done.stdout]
    return f"does not print {missing[0]}, but\n{done.stdout}" if missing else None


def main(action, root, binaries=""):
    root = pathlib.Path(root)
    commands = parse((root / "tests/docs/commands.map").read_text("utf-8"))
    if action == "check":
        shown = [(f"{page.relative_to(root)}:{line}", command) for page in pages_below(root)
                 for line, command in commands_in(page)]
        problems = check(shown, commands)
    else:
        problems = [f"{command}: {problem}" for command, (_, reason, prints) in commands.items()
                    if reason is None and (problem := run(command, prints, root, binaries))]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
