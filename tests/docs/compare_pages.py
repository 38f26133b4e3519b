#!/usr/bin/env python3
"""compare_pages.py FOLDER NAME...: fails unless FOLDER/NAME.zh.md is in step with FOLDER/NAME.md
for each name, and if a translation is there that is not named.

In step: both link each other; the same headings by level; in each section the same blocks of code,
byte for byte, the same tables, in whose rows the same words are in backquotes and in whose columns
the same cells are equal, and elsewhere the same words in backquotes and links. Each difference is
one line that says where and what.
"""
import pathlib
import sys
from collections import Counter

from pages import cells_of, links_in, lost_anchors, names_in, read_page, tables_in


def compare_sets(here, there, what, first, second):
    """first and second: places; here and there: what is said at them."""
    missing = [f"{second}: {what} {item} of {first} is missing" for item in sorted(here - there)]
    return missing + [f"{second}: {what} {item} is not in {first}" for item in sorted(there - here)]


def compare_blocks(page, section, other, twin):
    if len(section.blocks) != len(twin.blocks):
        return [f"{other}:{twin.line}: {len(twin.blocks)} blocks of code in this section, "
                f"{len(section.blocks)} in that of {page}:{section.line}"]
    return [f"{other}:{there.line}: this block differs from that of {page}:{here.line}"
            for here, there in zip(section.blocks, twin.blocks)
            if (here.language, here.code) != (there.language, there.code)]


def compare_cells(page, table, other, twin):
    """What is said twice in a column is translated twice in the same way: a row's kind, say."""
    meanings, differences = {}, []
    for (line, row), (there, translated) in zip(table, twin):
        pairs = zip(cells_of(row), cells_of(translated))
        for column, (cell, cell_there) in enumerate(pairs):
            first = meanings.setdefault((column, cell), (cell_there, there))
            if first[0] != cell_there:
                differences.append(f"{other}:{there}: {cell_there}, but at {other}:{first[1]} "
                                   f"{first[0]}: both are {cell} in {page}:{line}")
    return differences


def compare_rows(page, table, other, twin):
    if len(table) == len(twin):
        names = [difference for (line, row), (there, translated) in zip(table, twin)
                 for difference in compare_sets(names_in(row), names_in(translated), "in this row",
                                                f"{page}:{line}", f"{other}:{there}")]
        return names + compare_cells(page, table, other, twin)
    rows = [Counter(" ".join(sorted(names_in(row))) for _, row in side) for side in (table, twin)]
    differences = [f"{other}:{twin[0][0]}: {len(twin)} rows in this table, "
                   f"{len(table)} in that of {page}:{table[0][0]}"]
    for name in sorted(rows[0] - rows[1]):
        differences.append(f"{other}:{twin[0][0]}: no row with `{name}`")
    for name in sorted(rows[1] - rows[0]):
        differences.append(f"{page}:{table[0][0]}: no row with `{name}`")
    return differences


def compare_tables(page, section, other, twin):
    tables, twins = tables_in(section), tables_in(twin)
    if len(tables) != len(twins):
        return [f"{other}:{twin.line}: {len(twins)} tables in this section, {len(tables)} in that "
                f"of {page}:{section.line}"]
    return [difference for table, translated in zip(tables, twins)
            for difference in compare_rows(page, table, other, translated)]


def prose_of(section):
    return "\n".join(text for _, text in section.lines if not text.startswith("|"))


def compare_sections(page, section, other, twin):
    places = f"{page}:{section.line}", f"{other}:{twin.line}"
    here, there = prose_of(section), prose_of(twin)
    links = links_in(section.text()), links_in(twin.text())
    return (compare_blocks(page, section, other, twin) + compare_tables(page, section, other, twin)
            + compare_sets(names_in(here), names_in(there), "in this section", *places)
            + compare_sets(*links, "the link", *places))


def compare(page, other):
    sections, twins = read_page(page), read_page(other)
    differences = [f"{here}: no link to {pathlib.Path(there).name}"
                   for here, there in ((page, other), (other, page))
                   if f"({pathlib.Path(there).name})" not in pathlib.Path(here).read_text("utf-8")]
    for path, read in ((page, sections), (other, twins)):
        differences += [f"{path}:{line}: no heading for #{anchor}"
                        for line, anchor in lost_anchors(read)]
    for section, twin in zip(sections, twins):
        if section.level != twin.level:
            return differences + [f"{other}:{twin.line}: a heading of level {twin.level}, but of "
                                  f"level {section.level} at {page}:{section.line}"]
    if len(sections) != len(twins):
        rest = (page, sections) if len(sections) > len(twins) else (other, twins)
        odd = rest[1][min(len(sections), len(twins))]
        return differences + [f"{rest[0]}:{odd.line}: only here: {odd.title}"]
    return differences + [difference for section, twin in zip(sections, twins)
                          for difference in compare_sections(page, section, other, twin)]


def main(folder, *names):
    there = {path.name.removesuffix(".zh.md") for path in pathlib.Path(folder).glob("*.zh.md")}
    differences = [f"{folder}/{name}.zh.md: compared by no test" for name in sorted(there - set(names))]
    for name in names:
        differences += compare(f"{folder}/{name}.md", f"{folder}/{name}.zh.md")
    for difference in differences:
        print(difference)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
