#!/usr/bin/env python3
"""The C++ blocks of a page as a source file that a test compiles.

extract_blocks.py blocks PAGE.md OUT.cpp LANGUAGE PRELUDE  each block of this language (`cpp`,
    `cpp libtorch`) becomes a function in a table, documented_blocks(); PRELUDE is included
extract_blocks.py program PAGE.md OUT.cpp                  the one block that has a main()
extract_blocks.py excerpts PAGE.md FILE                    fails unless each block of FILE's language is in it
"""
import sys

from pages import blocks_of


def blocks_in(page, language):
    found = [block for block in blocks_of(page) if block.language == language]
    if not found:
        sys.exit(f"{page}: no block ```{language}")
    return found


def write(out, lines):
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def extract_blocks(page, out, language, prelude):
    found = blocks_in(page, language)
    lines = ['#include "docs/blocks.hpp"', f'#include "{prelude}"', ""]
    for block in found:
        lines += [f"static int line_{block.line}() {{", f'#line {block.line + 1} "{page}"',
                  block.code.rstrip("\n"), "    return 0;", "}", ""]
    lines += ["const std::vector<DocumentedBlock>& documented_blocks() {",
              "    static const std::vector<DocumentedBlock> all{"]
    lines += [f'        {{{block.line}, "{block.section}", line_{block.line}}},' for block in found]
    lines += ["    };", "    return all;", "}"]
    write(out, lines)


def extract_program(page, out):
    found = [block for block in blocks_in(page, "cpp") if "int main(" in block.code]
    if len(found) != 1:
        sys.exit(f"{page}: {len(found)} blocks have a main(), not 1")
    write(out, [f'#line {found[0].line + 1} "{page}"', found[0].code.rstrip("\n")])


def compare_excerpts(page, file):
    with open(file, encoding="utf-8") as source:
        text = source.read()
    for block in blocks_in(page, file.rpartition(".")[2]):
        if block.code not in text:
            sys.exit(f"{page}:{block.line}: this block is not, line by line, in {file}")


if __name__ == "__main__":
    {"blocks": extract_blocks, "program": extract_program,
     "excerpts": compare_excerpts}[sys.argv[1]](*sys.argv[2:])
