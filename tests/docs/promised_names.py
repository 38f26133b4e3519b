#!/usr/bin/env python3
"""promised_names.py SOURCE_FOLDER: fails unless each ddp::name and each header ddp/name.hpp that a
page speaks of is there for its reader: declared in include/ddp, or a target of CMake's.

Each name that does not is one line that says where and what. A header is read as a compiler would
read it, as far as names are concerned: in `namespace`, `class`, `struct` and `enum`, but neither in
comments, parameters nor the bodies of functions. Its scopes are kept by their path, so that
ddp::Device::parse is found in Device alone.
"""
import pathlib
import re
import sys

PAGES = ("*.md", "docs/*.md", "docs/*/*.md")
TOKENS = re.compile(r"[A-Za-z_]\w*|::|[{}();=:]|\S")
NOT_CODE = re.compile(r"//[^\n]*|\[\[.*?\]\]|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'"
                      r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
SCOPES = {"namespace", "class", "struct", "union", "enum"}


def scope_of(statement):
    """The path that a brace opens after these tokens: none for a function's or a value's."""
    if "=" in statement:
        return None
    kinds = [i for i, token in enumerate(statement) if token in SCOPES]
    if not kinds or ")" in statement[kinds[-1]:]:
        return None
    path = []
    for token in statement[kinds[-1] + 1:]:
        if token == ":":
            break  # bases, or an enum's type
        if re.match(r"[A-Za-z_]", token) and not token.startswith("DDP_") and token != "final":
            path.append(token)
    return tuple(path)


def declared_in(text):
    """Each name of a header as the path to it: {("ddp", "Device", "parse"), ...}."""
    names = set()
    scopes = []  # of each open brace: the path to what is in it; None: nothing in it counts
    outer = []   # the path around it, where its names count too: an enum without class
    statement = []
    parentheses = 0
    for token in TOKENS.findall(NOT_CODE.sub(" ", text)):
        here = scopes[-1] if scopes else ()
        if parentheses or token in "()":
            parentheses += {"(": 1, ")": -1}.get(token, 0)
            statement += [token] * (token == ")" and not parentheses)
            continue
        if token == "{":
            opened = scope_of(statement)
            scopes.append(None if here is None or opened is None else here + opened)
            outer.append(here if "enum" in statement and not {"class", "struct"} & set(statement)
                         else None)
        elif token == "}":
            scopes.pop()
            outer.pop()
        elif here is not None and re.match(r"[A-Za-z_]", token):
            names.add(here + (token,))
            if outer and outer[-1] is not None:
                names.add(outer[-1] + (token,))
        statement = [] if token in "{};" else statement + [token]
    return names


def declared_below(include):
    names = set()
    for header in sorted(include.rglob("*.hpp")):
        names |= declared_in(header.read_text("utf-8"))
    return names


def targets_below(root):
    """ddp::name as CMake knows it: what is linked by its own examples of use, and what is made."""
    files = [root / "examples/consumer/CMakeLists.txt", *(root / "cmake").glob("*.cmake"),
             root / "runtime/CMakeLists.txt"]
    return {(*name.split("::"),) for file in files
            for name in re.findall(r"\bddp::\w+", file.read_text("utf-8"))}


def check_page(page, text, names, headers):
    """page: what to call it in messages."""
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        for name in re.findall(r"(?<![\w:])ddp(?:::\w+)+", line):
            if tuple(name.split("::")) not in names:
                problems.append(f"{page}:{number}: include/ddp has no {name}")
        for header in re.findall(r"(?<![\w/])(?:include/)?(ddp/[\w/]+\.h(?:pp)?)(?!\w)",
                                 line.replace("../", "")):
            if header not in headers:
                problems.append(f"{page}:{number}: there is no include/{header}")
    return problems


def main(root):
    root = pathlib.Path(root)
    include = root / "include"
    names = declared_below(include) | targets_below(root)
    headers = {str(path.relative_to(include)) for path in include.rglob("*.h*")}
    pages = [page for pattern in PAGES for page in sorted(root.glob(pattern))]
    problems = [problem for page in pages
                for problem in check_page(page.relative_to(root), page.read_text("utf-8"), names,
                                          headers)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
