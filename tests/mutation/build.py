"""The copy of the sources that is mutated, and its build folder."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

from mutants import apply
from results import EQUIVALENT, REFUSED

# A header that more objects include costs more than one mutant is worth.
MOST_OBJECTS = 8


class Build:
    def __init__(self, root, folder, through, configure):
        self.root = root
        self.tree = folder / "tree"
        self.folder = self.tree / "build"
        self.clean = folder / "clean"  # objects
        self.log = folder / "build.log"
        self.through = through
        self.configure = configure
        self.objects = None
        self.targets = None

    # Sources ------------------------------------------------------------------------------------

    def prepare(self):
        self.copy_sources()
        if not (self.folder / "build.ninja").exists():
            self.call(["cmake", "--preset", "default", *self.configure], check=True)
        self.read_objects()

    def copy_sources(self):
        """Only what has changed, so that nothing else is compiled again."""
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in listed if name and (self.root / name).is_file()}
        for name in wanted:
            source, copy = self.root / name, self.tree / name
            if copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)
        for path in self.tree.rglob("*"):
            name = str(path.relative_to(self.tree))
            if not name.startswith("build/") and path.is_file() and name not in wanted:
                path.unlink()
        shutil.rmtree(self.clean, ignore_errors=True)

    def may_be_mutated(self, file):
        """Sources; before the build is there, headers as well."""
        if file.endswith(".cpp"):
            return self.objects is None or file in self.objects
        return self.objects is None or 0 < len(self.objects.get(file, [])) <= MOST_OBJECTS

    @contextlib.contextmanager
    def mutated(self, mutant):
        path = self.tree / mutant.file
        before = path.read_bytes()
        try:
            apply(self.tree, mutant)
            yield
        finally:
            path.write_bytes(before)

    # Objects ------------------------------------------------------------------------------------

    def read_objects(self):
        """{file: [object]}: of a source those that it is compiled to, of a header those of the library that include it."""
        self.objects = {}
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        for one in commands:
            name = os.path.relpath(one["file"], self.tree)
            if not name.startswith(("runtime/", "launcher/")):
                continue
            words = one["command"].split()
            output = os.path.join(one["directory"], words[words.index("-o") + 1])
            output = os.path.relpath(output, self.folder)
            self.objects.setdefault(name, []).append(output)
        known = [one for outputs in self.objects.values() for one in outputs]
        output = None
        deps = subprocess.run(["ninja", "-C", str(self.folder), "-t", "deps"], check=True,
                              capture_output=True, text=True).stdout
        includes = {}
        for line in deps.split("\n"):
            if line and not line.startswith(" "):
                output = line.split(":")[0]
            elif line.strip():
                name = os.path.relpath(os.path.join(self.folder, line.strip()), self.tree)
                if name.endswith(".hpp") and name.startswith(("runtime/", "launcher/")):
                    includes.setdefault(name, []).append(output)
        for name, outputs in includes.items():
            # Tests that include it are compiled as they are linked; they count as well.
            self.objects[name] = sorted(set(outputs), key=lambda one: one not in known)
        listed = subprocess.run(["ninja", "-C", str(self.folder), "-t", "targets", "all"], check=True,
                                capture_output=True, text=True).stdout
        self.targets = {line.split(":")[0] for line in listed.split("\n")}

    def machine_code(self, name):
        """Of an object, without line numbers; None where it cannot be compiled."""
        if self.ninja(name).returncode != 0:
            return None
        bare = self.clean / "bare.o"
        bare.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["objcopy", "--strip-debug", str(self.folder / name), str(bare)], check=True)
        return bare.read_bytes()

    def clean_code(self, name):
        kept = self.clean / name.replace("/", "%")
        if not kept.exists():
            code = self.machine_code(name)
            if code is None:
                sys.exit(f"mutate: {name} cannot be compiled without a mutant; see {self.log}")
            kept.write_bytes(code)
        return kept.read_bytes()

    def try_compile(self, mutant):
        """Why this is no mutant; None when it is one."""
        same = True
        names = self.objects[mutant.file]
        path = self.tree / mutant.file
        text = path.read_bytes()
        missing = [name for name in names if not (self.clean / name.replace("/", "%")).exists()]
        if missing:  # as it was
            with self.clean_again(mutant, path):
                for name in missing:
                    self.clean_code(name)
            path.write_bytes(text)
        for name in names:
            code = self.machine_code(name)
            if code is None:
                return REFUSED
            same = same and code == self.clean_code(name)
        return EQUIVALENT if same else None

    @contextlib.contextmanager
    def clean_again(self, mutant, path):
        source = path.read_text().split("\n")
        count = mutant.mutated.count("\n")
        source[mutant.line - 1 : mutant.line - 1 + count] = [mutant.original.rstrip("\n")]
        path.write_text("\n".join(source))
        yield

    # Programs -----------------------------------------------------------------------------------

    def program(self, name):
        return self.folder / "tests/bin" / name

    def has(self, name):
        return name in self.targets

    def link(self, name):
        return self.ninja(name).returncode == 0

    def ninja(self, target):
        return self.call(["ninja", "-C", str(self.folder), "-j1", target])

    def call(self, command, check=False):
        with open(self.log, "a", encoding="utf-8") as log:
            result = subprocess.run(self.through + command, stdout=log, stderr=log, cwd=self.tree, check=False)
        if check and result.returncode != 0:
            sys.exit(f"mutate: {' '.join(command)} failed; see {self.log}")
        return result
