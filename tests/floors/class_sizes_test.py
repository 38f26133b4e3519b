"""What class_sizes.py says of a class that is just small enough, of one with a member too many and of one with a line too
many, whose functions are in another file than its body.

    class_sizes_test.py SCRIPT
"""
import json
import os
import subprocess
import sys
import tempfile

HEADER = """#pragma once
struct Small {
    int %s;
};
struct ManyMembers {
    int %s;
};
class ManyLines {
    ManyLines();
    int opening;
    char closing;
    void first();
    void second();
};
"""


def names(count):
    return ", ".join(f"member_{i}" for i in range(count))


def function(name, lines):
    return f"void ManyLines::{name}() {{\n" + "    ;\n" * (lines - 2) + "}\n"


# Four lines; what looks like its end is none.
CONSTRUCTOR = """ManyLines::ManyLines() : opening{'{'},  // }
    closing{'}'} {
    (void)"}"; /* } */ (void)R"x(})x";
}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "runtime"))
        sources = {
            "classes.hpp": HEADER % (names(15), names(16)),
            "first.cpp": '#include "classes.hpp"\n' + function("first", 200),
            "second.cpp": '#include "classes.hpp"\n' + function("second", 190) + CONSTRUCTOR,
        }
        for name, text in sources.items():
            with open(os.path.join(folder, "runtime", name), "w") as stream:
                stream.write(text)
        commands = [
            {"directory": folder, "file": f"runtime/{name}", "command": f"c++ -std=c++20 -c runtime/{name}"}
            for name in ("first.cpp", "second.cpp")
        ]
        with open(os.path.join(folder, "compile_commands.json"), "w") as stream:
            json.dump(commands, stream)
        result = subprocess.run([sys.executable, sys.argv[1], folder, folder], capture_output=True, text=True)
        if result.returncode == 77:
            return 77
        lines = result.stdout.splitlines()
        expected = [
            "runtime/classes.hpp:8: ManyLines has 401 lines and 2 data members; at most 400 and 15",
            "runtime/classes.hpp:5: ManyMembers has 3 lines and 16 data members; at most 400 and 15",
            "3 classes in 2 translation units",
        ]
        if result.returncode != 1 or lines != expected:
            print(result.stdout, result.stderr, f"expected {expected}", sep="\n")
            return 1
        return 0


sys.exit(main())
