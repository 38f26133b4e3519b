"""Starts jobs of several worker processes by ddp-launch, as torchrun does.

    result = ddp_launch.run(["python3", "train.py"], nproc_per_node=4)
    if not result.ok:
        print(result.report)

As ddp::launch() of the C++ library, whose options and result these are.
"""
import os
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Sequence

__all__ = ["HostResult", "LaunchError", "LaunchResult", "launcher_path", "run"]


class LaunchError(RuntimeError):
    """ddp-launch is not there, or refuses an option."""


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
        return named
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), os.path.dirname(sys.executable)]
    own = shutil.which("ddp-launch", path=os.pathsep.join(folders))
    found = own or shutil.which("ddp-launch")
    if found is None:
        raise LaunchError("ddp-launch is neither in " + ", ".join(folders) + " nor along PATH; pip install ddp-launch")
    return found


def run(
    command: Sequence[str],
    *,
    nproc_per_node: int = 1,
    hosts: Sequence[str] = (),
    max_restarts: int = 0,
    shutdown_timeout: float = 30,
    timeout: Optional[float] = None,
    log_dir: str = "",
    environment: Optional[Mapping[str, str]] = None,
    arguments: Sequence[str] = (),
) -> LaunchResult:
    """Runs `command`, a program and its arguments, in each worker; blocks until no process of the job is left.

    hosts: others, "h1" or with workers of its own "h1:4"; max_restarts: how often all workers are started again after a failure;
    shutdown_timeout: seconds between the signal that asks workers to stop and SIGKILL; timeout: seconds after which the job is
    stopped as by SIGTERM; environment: added to this process's; arguments: further options of ddp-launch, such as "--tee=3".

    Output goes to this process's stdout and stderr. That workers fail is a result; LaunchError is raised where ddp-launch is
    missing or refuses an option. When this process ends meanwhile the job is ended, too.
    """
    if isinstance(command, str) or not command or not command[0]:
        raise ValueError("ddp_launch.run: a list is wanted, of a program and its arguments")
    options = [f"--nproc-per-node={nproc_per_node}", f"--max-restarts={max_restarts}", f"--shutdown-timeout={shutdown_timeout:g}"]
    if hosts:
        options.append("--hosts=" + ",".join(hosts))
    if log_dir:
        options.append("--log-dir=" + log_dir)
    words = [launcher_path(), *options, *arguments, "--no-python", "--", *command]
    liveness = os.pidfd_open(os.getpid())
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            variables = {**os.environ, **(environment or {}), "DDP_LAUNCH_HOST": f"{liveness}:{theirs.fileno()}:0"}
            try:
                process = subprocess.Popen(words, env=variables, pass_fds=[liveness, theirs.fileno()])
            except OSError as error:
                raise LaunchError(f"cannot start {words[0]}: {error.strerror}") from error
            theirs.close()
            timed_out = _wait(process, timeout)
            return _result(process, ours, timed_out)
    finally:
        os.close(liveness)


def _wait(process: "subprocess.Popen[bytes]", timeout: Optional[float]) -> bool:
    try:
        process.wait(timeout)
        return False
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        return True
    except BaseException as error:
        # Ctrl-C at the terminal reaches ddp-launch, too, and a second signal would leave the workers no time.
        if not (isinstance(error, KeyboardInterrupt) and _is_in_foreground()):
            process.terminate()
        process.wait()
        raise


def _is_in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


# The frame that ddp-launch sends before it ends: contract/host_link.hpp.
def _result(process: "subprocess.Popen[bytes]", results: socket.socket, timed_out: bool) -> LaunchResult:
    frame = bytearray()
    while piece := results.recv(65536):
        frame += piece
    if len(frame) < 4:
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return LaunchResult(code, f"{process.args[0]} is gone and has left no result; was it killed, and by whom?", timed_out)
    reader = _Reader(bytes(frame[4:]))
    refused = reader.take("<B") == 1
    exit_code = reader.take("<q")
    report = reader.text()
    for _ in range(reader.take("<I")):
        reader.take("<IIIIB")
    hosts = [HostResult(reader.text(), reader.take("<I")) for _ in range(reader.take("<I"))]
    if refused:
        raise LaunchError(report)
    return LaunchResult(exit_code, report, timed_out, hosts)


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
