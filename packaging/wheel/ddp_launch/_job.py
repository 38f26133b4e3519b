"""A ddp-launch that this process has started, and how it ended."""
import ctypes
import fcntl
import importlib.metadata
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass, field
from typing import List, Mapping, Optional

_SLACK = 30.0  # seconds, beyond shutdown_timeout, until ddp-launch itself is killed


class LaunchError(RuntimeError):
    """ddp-launch is not there, cannot be started, or refuses an option."""


@dataclass(frozen=True)
class HostResult:
    """How ddp-launch ended on another host, or --rsh where that could not start it."""

    host: str
    exit_code: int


@dataclass(frozen=True)
class LaunchResult:
    exit_code: int  # as ddp-launch's: 0, the exit code of the rank that failed first, or 128 + a signal
    report: str = ""  # why it is not 0: the text that ddp-launch shows
    timed_out: bool = False  # stopped for `timeout`
    hosts: List[HostResult] = field(default_factory=list)  # of a job of other hosts, in their order

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


def launcher_path() -> str:
    """The program: DDP_LAUNCH in the environment, else this package's own, else along PATH."""
    named = os.environ.get("DDP_LAUNCH")
    if named:
        found = shutil.which(named)
        if found is None:
            raise LaunchError(f"DDP_LAUNCH is {named}, which is no program; set it to the file of ddp-launch, or unset it")
        return found
    found = _installed() or shutil.which("ddp-launch", path=os.pathsep.join(_script_folders())) or shutil.which("ddp-launch")
    if found is None:
        raise LaunchError("ddp-launch is neither in " + ", ".join(_script_folders()) + " nor along PATH; pip install ddp-launch")
    return found


def _installed() -> Optional[str]:
    """As pip has noted, wherever it has put it."""
    try:
        files = importlib.metadata.files("ddp-launch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "ddp-launch":
            return shutil.which(str(file.locate()))
    return None


def _script_folders() -> List[str]:
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    return [folder for folder in folders + [os.path.dirname(sys.executable or "")] if folder]


class Job:
    """A ddp-launch with a link to this process: contract/host_link.hpp. Left by an exception it ends the job first."""

    def __init__(self, words: List[str], environment: Mapping[str, str], shutdown_timeout: float) -> None:
        self._words = words
        self._environment = environment
        self._longest_stop = shutdown_timeout + _SLACK
        self._starting = threading.Lock()
        self._is_left = False
        self._problem: Optional[BaseException] = None
        self._process: Optional[subprocess.Popen] = None
        self._results: Optional[socket.socket] = None

    def __enter__(self) -> "Job":
        """Another thread starts it, as a signal handler's exception may come between any two steps of the main one."""
        try:
            starter = threading.Thread(target=self._start)
            starter.start()
            starter.join()
            if self._problem is not None:
                raise self._problem
            return self
        except BaseException:
            self._leave()
            self._end(signal.SIGINT)
            raise

    def _start(self) -> None:
        with self._starting:
            if self._is_left:
                return
            try:
                self._process = self._started()
            except BaseException as error:
                self._problem = error

    def _leave(self) -> None:
        """Once this has returned it has been started, or never will be."""
        while not self._is_left:
            try:
                with self._starting:
                    self._is_left = True
            except KeyboardInterrupt:
                pass

    def _started(self) -> subprocess.Popen:
        liveness = _above_stderr(_pidfd_of_this_process())
        self._results, theirs = socket.socketpair()
        results_there = _above_stderr(theirs.detach())
        try:
            variables = {**os.environ, **self._environment, "DDP_LAUNCH_HOST": f"{liveness}:{results_there}:0"}
            return subprocess.Popen(
                self._words, env=variables, pass_fds=[liveness, results_there], stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise LaunchError(f"cannot start {self._words[0]}: {error.strerror}") from error
        finally:
            os.close(liveness)
            os.close(results_there)

    def _end(self, how: Optional[signal.Signals]) -> None:
        if how is not None and self._process is not None:
            self.stop(how)
        if self._results is not None:
            self._results.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end(None if kind is None else signal.SIGINT)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        try:
            self._process.wait(None if seconds == math.inf else seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def pass_on(self, number: int) -> None:
        """Also from a handler, while wait() waits."""
        self._process.send_signal(number)

    def stop(self, how: signal.Signals) -> None:
        """Returns when it has ended; who interrupts that asks it again."""
        ends_by = time.monotonic() + self._longest_stop
        while self._process.poll() is None:
            try:
                self._process.send_signal(how)
                if not self.wait(max(0.0, ends_by - time.monotonic())):
                    self._process.kill()
                    self.wait(_SLACK)
                    return
            except KeyboardInterrupt:
                how = signal.SIGINT

    def result(self, timed_out: bool, timeout: Optional[float]) -> LaunchResult:
        payload = self._payload()
        if payload is None:
            code = self._process.returncode
            why = f"{self._words[0]} is gone and has left no result; was it killed, and by whom?"
            # 0 also where somebody else has waited for it.
            return LaunchResult(1 if code == 0 else code if code is not None and code > 0 else 128 - (code or 0), why, timed_out)
        reader = _Reader(payload)
        refused = reader.take("<B") == 1
        exit_code = reader.take("<q")
        report = reader.text()
        for _ in range(reader.take("<I")):
            reader.take("<IIIIB")
        hosts = [HostResult(reader.text(), reader.take("<I")) for _ in range(reader.take("<I"))]
        if refused:
            raise LaunchError(report)
        timed_out = timed_out and exit_code != 0  # else it was over just then
        if timed_out:
            report = f"still ran after {timeout:g} s and was stopped\n{report}"
        return LaunchResult(exit_code, report, timed_out, hosts)

    def _payload(self) -> Optional[bytes]:
        """What ddp-launch, which has ended, has sent: all is here, whoever else has a copy of the other end."""
        self._results.setblocking(False)
        frame = bytearray()
        try:
            while True:
                piece = self._results.recv(65536)
                if not piece:
                    break
                frame += piece
        except OSError:
            pass
        if len(frame) < 4:
            return None
        (length,) = struct.unpack_from("<I", frame)
        return bytes(frame[4 : 4 + length]) if len(frame) >= 4 + length else None


def _pidfd_of_this_process() -> int:
    """os.pidfd_open, which not every Python has."""
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(os.getpid())
        except OSError as error:
            raise LaunchError(f"pidfd_open: {error.strerror}; ddp-launch needs Linux 5.4") from error
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(434, os.getpid(), 0)
    if descriptor < 0:
        raise LaunchError(f"pidfd_open: {os.strerror(ctypes.get_errno())}; ddp-launch needs Linux 5.4")
    return descriptor


def _above_stderr(descriptor: int) -> int:
    """ddp-launch takes no others, as a closed stdin, say, is not what it is told of."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


class _Reader:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, layout: str) -> int:
        values = struct.unpack_from(layout, self._payload, self._at)
        self._at += struct.calcsize(layout)
        return values[0]

    def text(self) -> str:
        length = self.take("<I")
        text = self._payload[self._at : self._at + length]
        self._at += length
        return text.decode(errors="replace")
