"""How the benchmark scripts judge and write: measures, Markdown, and a section of a file each."""

import os
import re
from dataclasses import dataclass, field

# docs/benchmarks.md, in this order; each is written by one script and kept by the others. A run on
# one maker's processor leaves the sections of the other makers.
SECTIONS = ["collectives", "hosts", "start", "step", "overlap_newest", "overlap", "data", "checkpoint",
            "newest_torch"]


@dataclass
class Measure:
    text: str
    wanted: str
    worst: float  # None: nothing was measured
    where: str
    met: bool
    rows: int
    missed: list  # of words about a row each
    at_floor: list = field(default_factory=list)  # not met, but nobody could here
    at_best: float = None  # of the worst row: what somebody at the floor would reach


# A row is at the floor when it takes no longer than this, over the floor that its run measured.
AT_FLOOR = 1.15


def judge(text, values, at_least=None, at_most=None, strictly=False, floors=None):
    """values: {where: number or None}. floors: {where: (the value at the floor, our time over the
    floor)}, either may be None."""
    known = {where: value for where, value in values.items() if value is not None}
    wanted = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
    if strictly:
        wanted = f"> {at_least:g}"
    if not known:
        return Measure(text, wanted, None, "not measured", False, 0, [])

    def good(value):
        if at_most is not None:
            return value <= at_most
        return value > at_least if strictly else value >= at_least

    pick = max if at_most is not None else min
    where = pick(known, key=known.get)
    missed = [place for place, value in known.items() if not good(value)]
    floors = floors or {}

    def is_at_floor(place):
        best, over = floors.get(place, (None, None))
        return best is not None and over is not None and over <= AT_FLOOR and not good(best)

    def words(place):
        best, _ = floors.get(place, (None, None))
        return f"{place}: {known[place]:.3f}x" + (f", at best {best:.3f}x" if best else "")

    return Measure(text, wanted, known[where], where, not missed, len(known),
                   [words(place) for place in missed if not is_at_floor(place)],
                   [words(place) for place in missed if is_at_floor(place)],
                   floors.get(where, (None, None))[0])


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


def verdict_of(measure):
    if measure.worst is None:
        return "not measured"
    parts = [f"{words} in {len(rows)} of {measure.rows} ({'; '.join(rows)})"
             for words, rows in (("**missed**", measure.missed), ("at the floor", measure.at_floor))
             if rows]
    return ", ".join(parts) or "met"


def measures_table(measures):
    """With the column `at best` where any measure has such a value."""
    floors = any(measure.at_best is not None for measure in measures)
    rows = [[measure.text, measure.wanted, factor(measure.worst) + f" ({measure.where})",
             *([factor(measure.at_best)] if floors else []), verdict_of(measure)]
            for measure in measures]
    return table(["what", "wanted", "worst", *(["at best"] if floors else []), "verdict"], rows)


def print_measures(measures):
    for measure in measures:
        print(f"{measure.text} {measure.wanted}:", factor(measure.worst), f"({measure.where}),",
              f"at best {factor(measure.at_best)}:", verdict_of(measure).replace("*", ""))


def begin_of(name, maker):
    return f"<!-- begin {name} on {maker} -->" if maker else f"<!-- begin {name} -->"


def sections_of(text):
    """{(name, maker): text}; the maker is empty where a section does not depend on it."""
    found = re.findall(r"^<!-- begin (\w+)(?: on (\w+))? -->\n(.*?)\n<!-- end \1 -->$", text,
                       re.DOTALL | re.MULTILINE)
    return {(name, maker): content for name, maker, content in found}


def section_of(text, name, maker=""):
    """Nothing when the text has none of that name."""
    return sections_of(text).get((name, maker), "")


def write_section(path, name, lines, maker=""):
    """Replaces one section of the file, of hosts with processors of this maker; the others stay as
    they are. The maker is added to the section's title, its first line."""
    text = ""
    if os.path.exists(path):
        with open(path) as file:
            text = file.read()
    if maker:
        lines = [f"{lines[0]}, on {maker}", *lines[1:]]
    sections = sections_of(text) | {(name, maker): "\n".join(lines).strip("\n")}
    parts = ["# Benchmarks"]
    for key in sorted(sections, key=lambda key: (SECTIONS.index(key[0]), key[1])):
        parts.append(f"{begin_of(*key)}\n{sections[key]}\n<!-- end {key[0]} -->")
    with open(path, "w") as file:
        file.write("\n\n".join(parts) + "\n")
