#!/usr/bin/env python3
"""Takes what gpu-check.sh has found into the page of all results.

    gpu_results.py ROWS.jsonl PAGE.md

A section for each card, driver, NCCL and build of ddp, the newest first. A new row takes the place of the one that its
section has of the check, unless it says that the check was not run. Ends with 2 for rows that it cannot read, and changes nothing then.
"""
import json
import re
import sys

FIELDS = ("check", "result", "figure", "unit", "wanted", "card", "driver", "nccl", "ddp", "date")
HEAD = """# ddp on a GPU

Written by `tools/gpu-check.sh merge` from what `gpu-check.sh run` finds on a machine with a GPU. `tools/gpu-check.sh` says how.
"""
TABLE = "| check | result | figure | wanted |\n|---|---|---|---|\n"


def refuse(why):
    print(f"gpu_results.py: {why}", file=sys.stderr)
    sys.exit(2)


def cell(text):
    return str(text).replace("|", "/").strip()


def read_rows(path):
    rows = []
    try:
        with open(path, encoding="utf-8") as stream:
            lines = list(stream)
    except OSError as error:
        refuse(error)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            refuse(f"{path}:{number}: no JSON: {error}")
        missing = [field for field in FIELDS if not isinstance(row, dict) or field not in row]
        if missing:
            refuse(f"{path}:{number}: has no {', '.join(missing)}")
        rows.append(row)
    if not rows:
        refuse(f"{path}: has no row; did gpu-check.sh run?")
    for row in rows:
        if not row["card"]:
            refuse(f"{path}: is of a machine without a GPU")
        if str(row["card"]).startswith("stand-in") or str(row["ddp"]).startswith("stand-in"):
            refuse(f"{path}: is of stand-ins, not of a GPU")
    return rows


def title_of(row):
    nccl = f", NCCL {row['nccl']}" if row["nccl"] else ""
    return f"{cell(row['card'])}, driver {cell(row['driver'])}{nccl}: {cell(row['ddp'])}"


def read_page(path):
    """Sections by title: the date, and the other columns by check."""
    sections = {}
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return sections
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        date = re.search(r"^On (\S+)\.", body, re.M)
        checks = {}
        for line in body.splitlines():
            cells = [one.strip() for one in line.strip("| ").split(" | ")]
            if line.startswith("| ") and len(cells) == 4 and cells[0] != "check":
                checks[cells[0]] = cells[1:]
        sections[title] = (date.group(1) if date else "", checks)
    return sections


def main():
    rows = read_rows(sys.argv[1])
    sections = read_page(sys.argv[2])
    for row in rows:
        _, checks = sections.get(title_of(row), ("", {}))
        if row["result"] == "not run" and cell(row["check"]) in checks:
            continue
        figure = f"{row['figure']} {row['unit']}".strip()
        checks[cell(row["check"])] = [cell(row["result"]), cell(figure), cell(row["wanted"])]
        sections[title_of(row)] = (row["date"], checks)
    new = {title_of(row) for row in rows}
    newest_first = sorted(sections.items(), key=lambda one: (one[1][0], one[0] in new), reverse=True)
    with open(sys.argv[2], "w", encoding="utf-8") as page:
        page.write(HEAD)
        for title, (date, checks) in newest_first:
            page.write(f"\n## {title}\n\nOn {date}.\n\n{TABLE}")
            for check, others in checks.items():
                page.write(f"| {check} | {' | '.join(others)} |\n")


if len(sys.argv) != 3:
    refuse("wants the rows and the page; tools/gpu-check.sh merge FILE.jsonl")
main()
