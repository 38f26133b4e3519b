"""The copies of the sources that are mutated, and their build folders.

The tree DIR/tree is built once, without a mutant. Each worker has a copy of it, DIR/N, which all that the worker starts sees in the
place of DIR/tree: paths are the same in all copies, so that nothing is configured or compiled anew."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

from mutants import apply
from results import EQUIVALENT, REFUSED

# Many mutants, of one source each, are compiled and few are run for long. Test programs have flags of their own.
CONFIGURE = ["-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g0 -DNDEBUG", "-DDDP_WITH_TORCH=OFF", "-DDDP_BUILD_EXAMPLES=OFF",
             "-DDDP_BUILD_TOOLS=OFF", "-DDDP_UNITY_BUILD=OFF"]
LINK = "-Wl,--strip-debug"
# A header that more objects include costs more than one mutant is worth.
MOST_OBJECTS = 8
SEEN_AS = 'mount --bind "$0" "$1" && shift && exec "$@"'


class Tree:
    """The sources without a mutant, and what is compiled of them."""

    def __init__(self, root, folder, through, configure):
        self.root = root
        self.path = folder / "tree"
        self.build = self.path / "build"
        self.log = folder / "build.log"
        # Nothing that is started outlives its worker. What stands in front must end as the command that it executes.
        self.through = [*through, "setpriv", "--pdeathsig", "KILL"]
        self.configure = configure
        self.objects = {}
        self.targets = set()

    def prepare(self, programs):
        """Builds these test programs, where this host can have them, and what they start."""
        self.copy_sources()
        if not (self.build / "build.ninja").exists():
            linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
            flags = "-DCMAKE_EXE_LINKER_FLAGS=" + " ".join([*linker, LINK])
            self.call(["cmake", "-S", str(self.path), "--preset", "default", *CONFIGURE, flags, *self.configure], check=True)
        self.read_targets()
        self.call(ninja(self.build, 2, [name for name in programs if name in self.targets]), check=True)
        self.read_objects()

    def copy_sources(self):
        """Only what has changed, so that nothing else is compiled again."""
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in listed if name and (self.root / name).is_file()}
        for name in wanted:
            source, copy = self.root / name, self.path / name
            if copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)
        for path in self.path.rglob("*"):
            name = str(path.relative_to(self.path))
            if not name.startswith("build/") and path.is_file() and name not in wanted:
                path.unlink()

    def may_be_mutated(self, file):
        return 0 < len(self.objects.get(file, [])) <= MOST_OBJECTS

    def program(self, name):
        return self.build / "tests/bin" / name

    def read_targets(self):
        listed = subprocess.run(["ninja", "-C", str(self.build), "-t", "targets", "all"], check=True,
                                capture_output=True, text=True).stdout
        self.targets = {line.split(":")[0] for line in listed.split("\n")}

    def read_objects(self):
        """{file: [object]}: of a source those that it is compiled to, of a header those that include it, the library's first."""
        self.objects = {}
        for one in json.loads((self.build / "compile_commands.json").read_text()):
            name = os.path.relpath(one["file"], self.path)
            words = one["command"].split()
            output = os.path.join(one["directory"], words[words.index("-o") + 1])
            output = os.path.relpath(output, self.build)
            if name.startswith(("runtime/", "launcher/")) and (self.build / output).exists():
                self.objects.setdefault(name, []).append(output)
        known = {one for outputs in self.objects.values() for one in outputs}
        deps = subprocess.run(["ninja", "-C", str(self.build), "-t", "deps"], check=True,
                              capture_output=True, text=True).stdout
        includes = {}
        output = None
        for line in deps.split("\n"):
            if line and not line.startswith(" "):
                output = line.split(":")[0]
            elif line.strip():
                name = os.path.relpath(os.path.join(self.build, line.strip()), self.path)
                if name.endswith(".hpp") and name.startswith(("runtime/", "launcher/")):
                    includes.setdefault(name, set()).add(output)
        for name, outputs in includes.items():
            self.objects[name] = sorted(outputs, key=lambda one: (one not in known, one))

    def call(self, command, check=False, log=None):
        # From ccache come the objects without a mutant, which the next mutant wants back.
        environment = {**os.environ, "CCACHE_DEPEND": "1"}
        with open(log or self.log, "a", encoding="utf-8") as out:
            result = subprocess.run(self.through + command, stdout=out, stderr=out, env=environment, check=False)
        if check and result.returncode != 0:
            sys.exit(f"mutate: {' '.join(command)} failed; see {self.log}")
        return result


class Copy:
    """Of the tree, for one worker."""

    def __init__(self, tree, folder):
        self.tree = tree
        self.folder = folder
        self.log = folder.with_name(f"build-{folder.name}.log")
        self.bare = folder.with_name(f"bare-{folder.name}.o")

    def make(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self.tree.path), str(self.folder)], check=True)

    def inside(self, command):
        """The command, so that it sees this copy as the tree."""
        return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", SEEN_AS, str(self.folder),
                str(self.tree.path), *command]

    @contextlib.contextmanager
    def mutated(self, mutant):
        path = self.folder / mutant.file
        before = path.read_bytes()
        try:
            apply(self.folder, mutant)
            yield
        finally:
            path.write_bytes(before)

    def try_compile(self, mutant):
        """Why this is no mutant; None when it is one. What its other objects are, linking tells."""
        for name in self.tree.objects[mutant.file]:
            if not self.make_target(name):
                return REFUSED
            if self.machine_code(self.folder / "build" / name) != self.machine_code(self.tree.build / name):
                return None
        return EQUIVALENT

    def machine_code(self, path):
        """Of an object, without line numbers."""
        subprocess.run(["objcopy", "--strip-debug", str(path), str(self.bare)], check=True)
        return self.bare.read_bytes()

    def make_target(self, name):
        return self.tree.call(self.inside(ninja(self.tree.build, 1, [name])), log=self.log).returncode == 0


def ninja(folder, jobs, targets):
    return ["ninja", "-C", str(folder), f"-j{jobs}", *targets]
