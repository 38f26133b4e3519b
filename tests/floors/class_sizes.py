#!/usr/bin/env python3
"""Lines and data members of each class, by clang's AST.

    class_sizes.py SOURCE_DIR BUILD_DIR [--list]

A class is whole when one reader can hold it: at most 400 lines, its body and all its members' definitions counted
together in whichever files they are, and at most 15 data members of its own. Prints each class that is larger and
ends with 1, or with 77 where there is no python3-clang. --list: prints the largest of the others, too. Reads
BUILD_DIR/compile_commands.json.
"""
import collections
import functools
import json
import os
import re
import shlex
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

STANDARD = "-std=c++20"
MOST_LINES = 400
MOST_MEMBERS = 15
FOLDERS = ("include", "runtime", "launcher")

try:
    from clang import cindex
except ImportError:
    print("class_sizes.py: there is no python3-clang; tools/install-deps.sh --interop installs it", file=sys.stderr)
    sys.exit(1 if os.environ.get("DDP_REQUIRE_INTEROP") == "1" else 77)

CLASSES = {
    cindex.CursorKind.CLASS_DECL,
    cindex.CursorKind.STRUCT_DECL,
    cindex.CursorKind.UNION_DECL,
    cindex.CursorKind.CLASS_TEMPLATE,
    cindex.CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
}
FUNCTIONS = {
    cindex.CursorKind.CXX_METHOD,
    cindex.CursorKind.CONSTRUCTOR,
    cindex.CursorKind.DESTRUCTOR,
    cindex.CursorKind.CONVERSION_FUNCTION,
    cindex.CursorKind.FUNCTION_TEMPLATE,
}


LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.S)
TOKEN = re.compile("[{}();]")
MORE = re.compile(r"\s*[,{]")


def flags_of(command):
    """Those of a compiler's command that decide what a source says."""
    words = shlex.split(command)
    flags = []
    take = False
    for word in words[1:]:
        if take or word[:2] in ("-I", "-D", "-U"):
            flags.append(word)
            take = False
        elif word == "-isystem":
            flags.append(word)
            take = True
    return flags


def lines_in(extent):
    path = os.path.realpath(extent.start.file.name)
    return {(path, line) for line in range(extent.start.line, extent.end.line + 1)}


def lines_of_function(start):
    """Of a definition that begins there, whose body clang has skipped: to its last brace, or the semicolon of one without."""
    path = os.path.realpath(start.file.name)
    text = source_text(path)
    depth = 0
    for token in TOKEN.finditer(text, start.offset):
        if token[0] in ("{", "(", "}", ")"):
            depth += 1 if token[0] in "{(" else -1
        # A brace after a brace, or a comma: a member's initialiser has ended.
        if depth == 0 and (token[0] == ";" or token[0] == "}" and not MORE.match(text, token.end())):
            return {(path, line) for line in range(start.line, start.line + text.count("\n", start.offset, token.end()) + 1)}
    raise ValueError(f"{path}:{start.line}: a definition without an end")


@functools.cache
def source_text(path):
    """With what comments and literals say made blank, but for ends of lines."""
    with open(path, encoding="utf-8") as stream:
        return LITERAL.sub(lambda found: re.sub("[^\n]", " ", found[0]), stream.read())


def visit(cursor, prefix, found):
    """Adds to `found`, by class, what this translation unit says of classes below `prefix`."""
    for child in cursor.get_children():
        file = child.location.file
        if file is None or not file.name.startswith(prefix):
            continue
        kind = child.kind
        if kind in CLASSES and child.is_definition():
            entry = found.setdefault(child.get_usr(), {"name": None, "members": 0, "lines": set()})
            entry["name"] = full_name(child)
            entry["at"] = f"{file.name}:{child.location.line}"
            entry["members"] = sum(1 for field in child.get_children() if field.kind == cindex.CursorKind.FIELD_DECL)
            entry["lines"] |= lines_in(child.extent)
        elif kind in FUNCTIONS:  # outside its class: the definition, which clang does not call one without its body
            owner = child.semantic_parent
            if owner is not None and owner.kind in CLASSES and child.lexical_parent != owner:
                entry = found.setdefault(owner.get_usr(), {"name": None, "members": 0, "lines": set()})
                entry["lines"] |= lines_of_function(child.extent.start)
        if kind in CLASSES or kind in (cindex.CursorKind.NAMESPACE, cindex.CursorKind.LINKAGE_SPEC):
            visit(child, prefix, found)


def full_name(cursor):
    names = []
    while cursor is not None and cursor.kind != cindex.CursorKind.TRANSLATION_UNIT:
        names.append(cursor.spelling or "(anonymous)")
        cursor = cursor.semantic_parent
    return "::".join(reversed(names))


def precompile(roots, file):
    """The library's headers that many sources include, so that they are read once."""
    names = collections.Counter()
    for folder, _, files in (entry for root in roots for entry in os.walk(root)):
        for name in files:
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                names.update(re.findall(r"^#include <([a-z_]+)>$", stream.read(), re.M))
    text = "".join(f"#include <{name}>\n" for name, count in names.items() if count > 5)
    unit = cindex.Index.create().parse(
        "common.hpp", args=["-x", "c++-header", STANDARD], unsaved_files=[("common.hpp", text)])
    unit.save(file)


def read(task):
    path, directory, flags, prefix, precompiled = task
    index = cindex.Index.create()
    os.chdir(directory)
    unit = index.parse(path, options=cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES, args=["-include-pch", precompiled, STANDARD, *flags])
    # Clang 14 does not know all of C++20's library; of a class that uses it, it says what is asked here all the same.
    missing = [str(d) for d in unit.diagnostics if d.severity == cindex.Diagnostic.Fatal]
    found = {}
    visit(unit.cursor, prefix, found)
    return path, missing, found


def main():
    source, build = (os.path.realpath(a) for a in sys.argv[1:3])
    with open(os.path.join(build, "compile_commands.json")) as stream:
        commands = json.load(stream)
    roots = tuple(os.path.join(source, folder) + "/" for folder in FOLDERS)
    tasks = {}
    for command in commands:
        path = os.path.realpath(os.path.join(command["directory"], command["file"]))
        # Sources that are compiled together are read together: the file that includes them is in the build's mirror of their folder.
        whole = os.path.join(source, os.path.relpath(path, build)) if "/Unity/" in path else path
        if whole.startswith(roots) and path.endswith((".cpp", ".cxx")):
            tasks.setdefault(path, (path, command["directory"], flags_of(command["command"]), source + "/"))
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(max_workers=2) as pool:
        precompiled = os.path.join(scratch, "common.pch")
        precompile(roots, precompiled)
        results = list(pool.map(read, [(*task, precompiled) for task in tasks.values()], chunksize=4))
    classes = {}
    failures = []
    for path, missing, found in results:
        failures += [f"{path}: {text}" for text in missing]
        for usr, entry in found.items():
            whole = classes.setdefault(usr, {"name": None, "members": 0, "lines": set(), "at": ""})
            whole["lines"] |= entry["lines"]
            if entry["name"]:
                whole.update(name=entry["name"], members=entry["members"], at=entry["at"])
    named = sorted((c for c in classes.values() if c["name"]), key=lambda c: -len(c["lines"]))
    for c in named:
        text = f'{os.path.relpath(c["at"], source)}: {c["name"]} has {len(c["lines"])} lines and {c["members"]} data members'
        if len(c["lines"]) > MOST_LINES or c["members"] > MOST_MEMBERS:
            failures.append(f"{text}; at most {MOST_LINES} and {MOST_MEMBERS}")
        elif "--list" in sys.argv and (len(c["lines"]) > MOST_LINES / 2 or c["members"] > 2 * MOST_MEMBERS / 3):
            print(text)
    print(*failures, f"{len(named)} classes in {len(tasks)} translation units", sep="\n")
    return 1 if failures or not named else 0


sys.exit(main())
