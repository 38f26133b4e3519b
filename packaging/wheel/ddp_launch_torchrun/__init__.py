"""ddp-launch in torchrun's place, in the environment that this package is installed in.

Each Python of it reads ddp_launch_torchrun.pth as it starts, which calls begin(). One that was started as torchrun, or with
`-m torch.distributed.run`, becomes ddp-launch at once. In others, as those of `accelerate launch` and `fabric run`, the function
torch.distributed.run.run() starts jobs by ddp-launch (_run.py). No file of torch's is changed. DDP_TORCHRUN=off leaves torchrun as it is.
What every Python of the environment imports is kept small.
"""
import os
import sys

_MODULE = "torch.distributed.run"
_has_begun = False


def begin() -> None:
    global _has_begun
    if _has_begun or os.environ.get("DDP_TORCHRUN") == "off":
        return
    _has_begun = True
    words = arguments_for_torchrun(_command_line())
    if words is not None:
        _become_launcher(words)
    sys.meta_path.insert(0, _Finder())


def _command_line():
    """This interpreter's; sys.argv is not there yet."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def arguments_for_torchrun(line):
    """What stands behind torchrun in an interpreter's command line; None: it runs something else."""
    words = iter(line[1:])
    for word in words:
        if word == "-" or not word.startswith("-"):
            return _unless_torchs_own(list(words)) if _is_torchrun(word) else None
        if word == "--check-hash-based-pycs":
            next(words, "")
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter not in "cmWX":
                continue
            value = word[place:] or next(words, "")
            if letter == "m" and value == _MODULE:
                return _unless_torchs_own(list(words))
            if letter in "cm":
                return None
            break
    return None


def _is_torchrun(path):
    """As installers write it, and not somebody's own script of that name, which may do more."""
    if os.path.basename(path) != "torchrun":
        return False
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file.read(4096).splitlines()]
    except (OSError, ValueError):
        return False
    if any(line.startswith("# EASY-INSTALL-ENTRY-SCRIPT: 'torch=") for line in lines):
        return True
    imported = f"from {_MODULE} import main"
    known = ("#", "'''exec' ", "' '''", "import re", "import sys", imported, "if __name__ == ", "sys.argv[0] = ", "if sys.argv[0].", "elif sys.argv[0].",
             "sys.exit(main())")
    return imported in lines and all(not line or line.startswith(known) for line in lines)


def _unless_torchs_own(words):
    """Completion of torchrun's own options, which a shell may read at its start."""
    return None if words and words[0].replace("_", "-").startswith("--print-completion") else words


def interpreter_words():
    """torchrun's workers are of its own interpreter, or PYTHON_EXEC's."""
    return [] if os.environ.get("PYTHON_EXEC") or not sys.executable else ["--python=" + sys.executable]


def _become_launcher(words):
    """Returns where there is none; run() says so then, when torch has been loaded."""
    path = os.environ.get("DDP_LAUNCH")
    if not path:
        # Beside lib/pythonX.Y/site-packages, where pip puts both.
        path = os.path.abspath(__file__ + "/../../../../../bin/ddp-launch")
    if not os.access(path, os.X_OK):
        try:
            from ddp_launch import launcher_path

            path = launcher_path()
        except (ImportError, RuntimeError):
            return
    try:
        os.execv(path, [path] + interpreter_words() + words)
    except OSError:
        return


class _Finder:
    """Of torch.distributed.run: torch's own module, with our run()."""

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    def __init__(self, torchs):
        self._torchs = torchs

    def create_module(self, spec):
        return self._torchs.create_module(spec)

    def exec_module(self, module):
        self._torchs.exec_module(module)
        try:
            from ddp_launch_torchrun import _run
        except ImportError as error:
            advice = "pip install 'ddp-launch[torchrun]', or pip uninstall ddp-launch-torchrun"
            print(f"ddp_launch_torchrun: torchrun is PyTorch's own: {error}; {advice}", file=sys.stderr)
            return
        module.run = _run.run_by_launcher(module)

    def get_code(self, name):
        """For runpy, by which debuggers and profilers run a module: the one that others import has our run()."""
        return compile(f"from {name} import *\nif __name__ == '__main__':\n    main()\n", f"<{name}>", "exec")

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._torchs, name)
