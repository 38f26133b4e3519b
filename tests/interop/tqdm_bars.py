"""tqdm_bars.py DDP_LAUNCH: the bars that tqdm draws in two ranks at once are a line each on a terminal, whole and apart while they grow
and when they have ended, between the lines that the ranks print; elsewhere a bar's last state is one line. So are bars within bars."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

import pyte

WORKER = """
import os, time
from tqdm import tqdm
rank = os.environ["RANK"]
for epoch in range(2):
    for _ in tqdm(range(30), desc=f"rank {rank} epoch {epoch}", ncols=60):
        time.sleep(0.02)
    print(f"rank {rank} has done epoch {epoch}", flush=True)
"""
NESTED = """
import os, time
from tqdm import tqdm
rank = os.environ["RANK"]
for epoch in tqdm(range(3), desc=f"rank {rank} outer", ncols=60):
    for _ in tqdm(range(10), desc=f"rank {rank} inner", ncols=60, leave=False):
        time.sleep(0.05)
"""
BAR = r"rank {0} epoch {1}: +(\d+)%\|.*\| (\d+)/30 \[[^]]*\]"


def screen_of(command):
    """What a terminal of 80 columns shows at the end, line by line, and all that it has shown on the way."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    screen = pyte.Screen(80, 40)
    stream = pyte.ByteStream(screen)
    seen = []
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # nobody has the other end
            break
        if not data:
            break
        stream.feed(data)
        seen.append([line.rstrip() for line in screen.display if line.strip()])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return seen


def run(text):
    """What is shown of the worker's two ranks on a terminal, as screen_of() tells, and what elsewhere."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as worker:
        worker.write(text)
        worker.flush()
        command = [sys.argv[1], "--nproc-per-node=2", "/usr/bin/python3", worker.name]
        seen = screen_of(command)
        plain = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    assert "\r" not in plain and "\x1b" not in plain, plain
    return seen, plain


def check_bars_within_bars():
    seen, plain = run(NESTED)
    for lines in seen:
        for rank in range(2):
            for name in ("outer", "inner"):
                assert sum(f"rank {rank} {name}" in line for line in lines) <= 1, lines
    assert any(sum("inner" in line for line in lines) == 2 and sum("outer" in line for line in lines) == 2 for lines in seen), seen
    for lines in (seen[-1], plain.splitlines()):
        bars = sorted(line[line.index("rank"):].split("|")[0] for line in lines if "%" in line)
        assert bars == [f"rank {rank} outer: 100%" for rank in range(2)], lines


def main():
    seen, plain = run(WORKER)
    whole = [re.compile(rf"\[{rank}\] " + BAR.format(rank, epoch)) for rank in range(2) for epoch in range(2)]
    done = [f"[{rank}] rank {rank} has done epoch {epoch}" for rank in range(2) for epoch in range(2)]
    for lines in seen:
        for line in lines:
            if "%" in line:
                assert sum(bar.fullmatch(line) is not None for bar in whole) == 1, lines
    growing = [lines for lines in seen if sum(" 0%" not in line and "100%" not in line and "%" in line for line in lines) == 2]
    assert growing, "never are there two bars under way"
    for bar, end in zip(whole, done):
        (last,) = [found for line in seen[-1] if (found := bar.fullmatch(line))]
        assert last.groups() == ("100", "30"), seen[-1]
        assert seen[-1].count(end) == 1, seen[-1]
        rank, epoch = re.search(r"rank (\d).* (\d)$", end).groups()
        assert [found[2] for line in plain.splitlines() if (found := re.fullmatch(BAR.format(rank, epoch), line))] == ["30"], plain
        assert plain.splitlines().count(end[4:]) == 1, plain
    check_bars_within_bars()


main()
