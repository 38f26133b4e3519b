"""How the benchmark scripts judge and write: measures, Markdown, and a section of a file each."""

import os
from dataclasses import dataclass

# docs/benchmarks.md, in this order; each is written by one script and kept by the others.
SECTIONS = ["collectives", "start", "step", "overlap", "data", "checkpoint", "newest_torch"]


@dataclass
class Measure:
    text: str
    wanted: str
    worst: float  # None: nothing was measured
    where: str
    met: bool
    rows: int
    missed: int


def judge(text, values, at_least=None, at_most=None, strictly=False):
    """values: {where: number or None}."""
    known = {where: value for where, value in values.items() if value is not None}
    wanted = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
    if strictly:
        wanted = f"> {at_least:g}"
    if not known:
        return Measure(text, wanted, None, "not measured", False, 0, 0)

    def good(value):
        if at_most is not None:
            return value <= at_most
        return value > at_least if strictly else value >= at_least

    pick = max if at_most is not None else min
    where = pick(known, key=known.get)
    missed = sum(not good(value) for value in known.values())
    return Measure(text, wanted, known[where], where, missed == 0, len(known), missed)


def number(value, digits=3):
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def factor(value):
    return "-" if value is None else f"{value:.2f}x"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def measures_table(measures):
    rows = []
    for measure in measures:
        verdict = "met" if measure.met else f"**missed** in {measure.missed} of {measure.rows}"
        if measure.worst is None:
            verdict = "not measured"
        rows.append([measure.text, measure.wanted, factor(measure.worst) + f" ({measure.where})",
                     verdict])
    return table(["what", "wanted", "worst", "verdict"], rows)


def print_measures(measures):
    for measure in measures:
        verdict = "-" if measure.worst is None else "met" if measure.met else "MISSED"
        print(f"{verdict:6}", measure.text, measure.wanted + ":",
              factor(measure.worst), f"({measure.where})")


def marks(name):
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"


def section_of(text, name):
    """Nothing when the text has none of that name."""
    begin, end = marks(name)
    if begin not in text or end not in text:
        return ""
    return text.split(begin, 1)[1].split(end, 1)[0].strip("\n")


def write_section(path, name, lines):
    """Replaces one section of the file; the others stay as they are."""
    text = ""
    if os.path.exists(path):
        with open(path) as file:
            text = file.read()
    parts = ["# Benchmarks"]
    for section in SECTIONS:
        content = "\n".join(lines) if section == name else section_of(text, section)
        if content:
            begin, end = marks(section)
            parts.append(f"{begin}\n{content}\n{end}")
    with open(path, "w") as file:
        file.write("\n\n".join(parts) + "\n")
