#!/usr/bin/env python3
"""extract_blocks.py PAGE.md OUT.cpp: each ```cpp block of the page becomes a function.

    extract_blocks.py --compare PAGE.md OTHER.md: fails unless both have the same code blocks.
"""
import re
import sys


def blocks(path, languages):
    with open(path, encoding="utf-8") as page:
        text = page.read()
    pattern = r"^```(" + "|".join(languages) + r")\n(.*?)^```$"
    found = [(text[:match.start(2)].count("\n") + 1, match.group(2))
             for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)]
    if not found:
        sys.exit(f"{path}: no block of code")
    return found


def extract(page, out):
    lines = ['#include "docs/blocks.hpp"', '#include "docs/prelude.hpp"', ""]
    names = []
    for number, block in blocks(page, ["cpp"]):
        names.append(number)
        lines += [f"static int line_{number}() {{", f'#line {number + 1} "{page}"', block.rstrip("\n"),
                  "    return 0;", "}", ""]
    lines += ["const std::vector<DocumentedBlock>& documented_blocks() {",
              "    static const std::vector<DocumentedBlock> all{"]
    lines += [f"        {{{number}, line_{number}}}," for number in names]
    lines += ["    };", "    return all;", "}"]
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def compare(page, other):
    first, second = ([block for _, block in blocks(path, ["cpp", "python"])]
                     for path in (page, other))
    if len(first) != len(second):
        sys.exit(f"{page} has {len(first)} blocks, {other} has {len(second)}")
    for (line, block), (there, translated) in zip(blocks(page, ["cpp", "python"]),
                                                  blocks(other, ["cpp", "python"])):
        if block != translated:
            sys.exit(f"{page}:{line} and {other}:{there} differ")


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(*sys.argv[2:])
    else:
        extract(*sys.argv[1:])
