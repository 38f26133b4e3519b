"""Faults on purpose (`ddp-launch --inject`), the worker's side: runtime/contract/injection.hpp's, for steps that Python publishes."""
import mmap
import os
import re
import signal
import sys
import time

# Not mismatch: only a group of ddp's has a call that the others do not make, and the launcher says so.
_FAULTS = ("kill", "stop", "exit", "delay", "slow", "oom")
_DELAY = 2.0
_MEBIBYTE = 1 << 20


class Injection:
    """What DDP_INJECT asks for of this rank, in the first start of the workers; mostly nothing."""

    def __init__(self) -> None:
        self._fault, self._step, self._last = None, 0, None
        asked = re.fullmatch(r"([a-z]+):rank=(\d+)@step=(\d+)", os.environ.get("DDP_INJECT", ""))
        is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if asked and is_first and asked.group(1) in _FAULTS and asked.group(2) == os.environ.get("RANK"):
            self._fault, self._step = asked.group(1), int(asked.group(3))

    def come_to(self, step: int) -> None:
        """Does what is due."""
        if self._fault is None or step < self._step:
            return
        fault, now = self._fault, time.monotonic()
        if self._last is None:
            print(f"ddp_launch: --inject: {fault} at step {step}", file=sys.stderr, flush=True)
            self._last = now
        if fault == "slow":
            time.sleep(now - self._last)
            self._last = time.monotonic()
            return
        self._fault = None
        if fault == "delay":
            time.sleep(_DELAY)
        elif fault == "oom":
            _take_memory()
        elif fault == "exit":
            os._exit(1)
        else:
            os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def _take_memory() -> None:
    """The kernel is to end this process and no other; all but 1 GiB of the host's memory is taken at most."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    with open("/proc/meminfo") as file:
        said = re.search(r"^MemAvailable:\s*(\d+) kB", file.read(), re.MULTILINE)
    available = int(said.group(1)) * 1024 if said else 0
    taken = []
    while (len(taken) * 16 + 1024) * _MEBIBYTE < available:
        try:
            taken.append(mmap.mmap(-1, 16 * _MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            break
        taken[-1].write(b"\1" * (16 * _MEBIBYTE))
    print("ddp_launch: --inject=oom: no limit of memory has ended this process; set one of its cgroup. It ends with 1", file=sys.stderr, flush=True)
    os._exit(1)
