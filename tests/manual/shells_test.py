"""shells_test.py bash|zsh|fish|mandoc LAUNCHER SHARE: whether that program understands what the build has made for it.

A shell runs on a terminal, and what a user would type there is typed: a beginning, Tab, and a key that shows the line as it is
then. Fish is asked what it would offer."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

SECONDS = 60

# What is typed, and what the line is then.
LINES = [
    ("ddp-launch --standal", "ddp-launch --standalone "),
    ("ddp-launch --log-dir lo", "ddp-launch --log-dir logs/"),
    ("ddp-launch --log-dir=lo", "ddp-launch --log-dir=logs/"),
    ("ddp-launch --report=resu", "ddp-launch --report=results.html "),
    ("ddp-launch --on-hang=st", "ddp-launch --on-hang=stop "),
    ("ddp-launch --on-hang st", "ddp-launch --on-hang stop "),
    ("ddp-launch -n g", "ddp-launch -n gpu "),
    ("ddp-launch --hosts=h1:4,h2:4 --no-hist", "ddp-launch --hosts=h1:4,h2:4 --no-history "),
    ("ddp-launch --hosts=h1:4,h2:4 ./tra", "ddp-launch --hosts=h1:4,h2:4 ./train "),
    ("ddp-launch -n 2 my_t", "ddp-launch -n 2 my_train.py "),
    ("ddp-launch -n2 -- ./tra", "ddp-launch -n2 -- ./train "),
    ("ddp-launch --env A=b --env=C=d ./tool resu", "ddp-launch --env A=b --env=C=d ./tool results.html "),
    ("ddp-launch --status=off ./train --standal", "ddp-launch --status=off ./train --standal"),
    ("ddp-launch --numa-b", "ddp-launch --numa-b"),
    ("ddp-launch insp", "ddp-launch inspect "),
    ("ddp-launch inspect --stac", "ddp-launch inspect --stacks "),
    ("ddp-launch inspect --standal", "ddp-launch inspect --standal"),
    ("ddp-launch -np g", "ddp-launch -np gpu "),
    ("ddp-launch -np 2 --no-hist", "ddp-launch -np 2 --no-history "),
    ("ddp-launch --nproc_per_node 2 --no-hist", "ddp-launch --nproc_per_node 2 --no-history "),
    ("ddp-launch --nproc 2 ./tool resu", "ddp-launch --nproc 2 ./tool results.html "),
    ("ddp-launch --max-restarts 2 --wrap '1:gdb --args' -n 2 scrap", "ddp-launch --max-restarts 2 --wrap '1:gdb --args' -n 2 scrap"),
    ("ddp-launch --log-dir lr=0.1/ck", "ddp-launch --log-dir lr=0.1/ckpt/"),
    ("ddp-launch -n 2 ./lr=0.1/tra", "ddp-launch -n 2 ./lr=0.1/train2 "),
    ("ddp-launch -- --no-hist", "ddp-launch -- --no-hist"),
    ("ddp-launch -m my_t", "ddp-launch -m my_t"),
    ("ddp-launch -m package resu", "ddp-launch -m package results.html "),
]
# What is typed, and the words that are offered.
OFFERS = [
    ("ddp-launch --on-hang ", {"say", "stop", "off"}),
    ("ddp-launch --stdin=", {"all", "none"}),
    ("ddp-launch --on-", {"--on-hang", "--on-closed-stdout"}),
    ("ddp-launch inspect --", {"--json", "--stacks", "--watch"}),
]
# Fish takes what is behind the second "=" for a word of its own.
NOT_FISH = [("ddp-launch --log-dir=lr=0.1/ck", "ddp-launch --log-dir=lr=0.1/ckpt/")]
# Names with underscores: bash keeps them, zsh does not; fish offers none.
UNDERSCORES = {
    "bash": [("ddp-launch --nproc_per_n", "ddp-launch --nproc_per_node "), ("ddp-launch --on_hang st", "ddp-launch --on_hang stop ")],
    "zsh": [("ddp-launch --no_hist", "ddp-launch --no-history "), ("ddp-launch --on_hang st", "ddp-launch --on_hang stop ")],
}
# Behind a program that has a completion of its own, alpha.
BEHIND = ["ddp-launch ./train", "ddp-launch -- ./train", "ddp-launch -n 2 -- ./train", "ddp-launch -np 2 ./train",
          "ddp-launch --nproc_per_node=2 --on_hang stop ./train", "ddp-launch --nproc 2 --standalone ./train --quick"]

START = {
    "bash": (["--norc", "--noprofile", "-i"], """
bind 'set bell-style none'; bind 'set completion-query-items 0'; bind 'set page-completions off'
bind 'set show-all-if-ambiguous on'; bind 'set enable-bracketed-paste off'
show() { printf '\\n<%s>\\n' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\\C-o": show'
[ -z "$LIBRARY" ] || { . "$LIBRARY"; complete -W alpha train; }
. "$SHARE/bash-completion/completions/ddp-launch"
PS1=; printf 're''ady\\n'
"""),
    "zsh": (["-f", "-i"], """
fpath=($SHARE/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -d "$HOME/zcompdump"
unsetopt beep auto_remove_slash; LISTMAX=1000; zle_bracketed_paste=()
show() { print -r -- $'\\n'"<$BUFFER>"; BUFFER=; }; zle -N show; bindkey '^O' show
_train() { compadd alpha; }; compdef _train train
PS1=; print -r -- re''ady
"""),
}


class Shell:
    def __init__(self, kind, environment, folder):
        words, start = START[kind]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(kind, [kind, *words], {**environment, "TERM": "dumb", "COLUMNS": "200", "LINES": "50"})
        (folder / "start").write_text(start)
        self.type(". ./start\n")
        self.read_until(rb"\nready\r?\n")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, pattern):
        seen, end = b"", time.monotonic() + SECONDS
        while not re.search(pattern, seen):
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                sys.exit(f"nothing more comes behind {seen!r}, instead of {pattern!r}")
            seen += os.read(self.terminal, 65536)
        return seen.decode()

    def completed(self, text):
        """The line as it is once it is completed, and all that was shown until then."""
        self.type(text + "\t")
        self.type("\x0f")
        shown = self.read_until(rb"\n<[^\r\n]*>\r?\n")
        return re.search(r"\n<([^\r\n]*)>\r?\n", shown).group(1), shown

    def close(self):
        os.write(self.terminal, b"\x15exit\n")
        os.waitpid(self.pid, 0)


def faults_of_terminal(kind, environment, folder):
    shell = Shell(kind, environment, folder)
    lines = LINES + NOT_FISH + UNDERSCORES[kind]
    if kind != "bash" or environment["LIBRARY"]:
        lines = lines + [(words + " al", words + " alpha ") for words in BEHIND]
    for typed, line in lines:
        found, shown = shell.completed(typed)
        if "ddp_launch" in shown or kind + ":" in shown:
            yield f"{kind} says, behind {typed!r}: {shown!r}"
        # A blank behind what cannot go on is the shell's own affair.
        if found.rstrip() != line.rstrip():
            yield f"{kind} makes of {typed!r} {found!r} and not {line!r}"
    for typed, words in OFFERS:
        _, shown = shell.completed(typed)
        missing = {word for word in words if not re.search(rf"(^|\s){re.escape(word)}\s", shown)}
        if missing:
            yield f"{kind} does not offer {missing} behind {typed!r}, but {shown!r}"
    shell.close()


def faults_of_fish(environment, folder):
    def offered(text):
        script = 'source "$SHARE/fish/vendor_completions.d/ddp-launch.fish"; complete -c train -fa alpha; complete -C "$argv[1]"'
        done = subprocess.run(["fish", "--no-config", "-c", script, text], cwd=folder, env=environment, timeout=SECONDS,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0 or done.stderr:
            sys.exit(f"fish fails for {text!r}: {done.stderr}")
        return {line.split("\t")[0] for line in done.stdout.splitlines()}

    for typed, line in LINES:
        begun, word = typed.rsplit(" ", 1)
        wanted = line[len(begun) + 1:].rstrip()
        found = offered(typed)
        if (wanted == word and found) or (wanted != word and wanted not in found):
            yield f"fish offers {sorted(found)[:10]} behind {typed!r} and not {wanted!r}"
    for words in BEHIND:
        if "alpha" not in offered(words + " al"):
            yield f"fish does not complete what is behind {words!r}"
    for typed, words in OFFERS:
        before = typed.rsplit(" ", 1)[1] if typed.endswith("=") else ""
        if not {before + word for word in words} <= offered(typed):
            yield f"fish offers {offered(typed)} behind {typed!r}"
    if offered("ddp-launch --on_hang st"):
        yield "fish offers for a value what is none"


PAGES = {
    "ddp-launch": ["ddp-launch inspect [RUN]", "--nproc-per-node=N|gpu|cpu|auto", "The default is root-cause.", "${rank}"],
    "ddp-bench": ["ddp-launch --nproc-per-node=N ddp-bench COLLECTIVE [options]", "--max-bytes SIZE the last row at most (default 256M).",
                  "--path user|shared|adopted user: any memory", "the median over iterations."],
    "ddp-doctor": ["ddp-doctor [options]", "--all-hosts of a job with a rank on each host", "Exit code: 0, 1 when something"],
}


def faults_of_pages(share):
    for name, texts in PAGES.items():
        page = share / f"man/man1/{name}.1"
        # It may know no other page here.
        done = subprocess.run(["mandoc", "-T", "lint", page], capture_output=True, text=True, check=False)
        for line in (done.stdout + done.stderr).splitlines():
            if "referenced manual not found" not in line and "mandoc.db" not in line:
                yield line
        shown = subprocess.run(["mandoc", "-T", "ascii", page], capture_output=True, text=True, check=True).stdout
        shown = " ".join(re.sub(".\b", "", shown).split())
        for words in texts:
            if words not in shown:
                yield f"the page of {name} does not show {words!r}: {shown}"


def main(kind, launcher, share):
    if not shutil.which(kind):
        print(f"no {kind} here; tools/install-deps.sh --interop installs it")
        return 1 if os.environ.get("DDP_REQUIRE_INTEROP") == "1" else 77
    if kind == "mandoc":
        faults = list(faults_of_pages(share))
        print(*faults, sep="\n")
        return bool(faults)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "logs").mkdir()
        (folder / "lr=0.1" / "ckpt").mkdir(parents=True)
        for file in ("train", "tool", "my_train.py", "results.html", "lr=0.1/train2"):
            (folder / file).touch(mode=0o755 if "." not in file or "/" in file else 0o644)
        environment = {"PATH": f"{os.path.dirname(launcher)}:/usr/bin:/bin", "HOME": name, "SHARE": str(share), "LANG": "C.UTF-8",
                       "LIBRARY": ""}
        if kind == "fish":
            faults = list(faults_of_fish(environment, folder))
        else:
            faults = list(faults_of_terminal(kind, environment, folder))
            library = "/usr/share/bash-completion/bash_completion"
            if kind == "bash" and (os.path.exists(library) or os.environ.get("DDP_REQUIRE_INTEROP") == "1"):
                faults += faults_of_terminal(kind, {**environment, "LIBRARY": library}, folder)
    print(*faults, sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])))
