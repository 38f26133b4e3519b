"""Starts jobs of several worker processes by ddp-launch, as torchrun does.

    result = ddp_launch.run(["python3", "train.py"], nproc_per_node=4)
    if not result.ok:
        print(result.report)

As ddp::launch() of the C++ library, whose options and result these are.
"""
import math
import signal
from typing import Mapping, Optional, Sequence

from ddp_launch._job import HostResult, Job, LaunchError, LaunchResult, launcher_path
from ddp_launch._progress import publish_progress

__all__ = ["HostResult", "LaunchError", "LaunchResult", "launcher_path", "publish_progress", "run"]


def run(
    command: Sequence[str],
    *,
    nproc_per_node: int = 1,
    hosts: Sequence[str] = (),
    max_restarts: int = 0,
    shutdown_timeout: int = 30,
    timeout: Optional[float] = None,
    log_dir: str = "",
    environment: Optional[Mapping[str, str]] = None,
    arguments: Sequence[str] = (),
) -> LaunchResult:
    """Runs `command`, a program or a Python script and its arguments, in each worker; returns when no process of the job is left.

    hosts: others, "h1" or with workers of its own "h1:4"; max_restarts: how often all workers are started again after a failure;
    shutdown_timeout: whole seconds between the signal that asks workers to stop and SIGKILL; timeout: seconds after which the job
    is stopped as by SIGTERM (None, 0: it may take as long as it wants); environment: added to this process's, or over it;
    arguments: further options of ddp-launch, such as "--tee=3", which win over those above.

    Output goes to this process's stdout and stderr; workers read from /dev/null. That workers fail is a result; LaunchError is
    raised where ddp-launch is missing or refuses an option. ddp-launch is in a session of its own: a KeyboardInterrupt, and any
    other exception that a signal handler raises meanwhile, is passed on as SIGINT, and goes on when the job has ended. When this
    process ends meanwhile the job is ended, too.
    """
    if isinstance(command, str) or not command or not command[0]:
        raise ValueError("ddp_launch.run: a list is wanted, of a program and its arguments")
    options = [
        f"--nproc-per-node={nproc_per_node}",
        f"--max-restarts={max_restarts}",
        f"--shutdown-timeout={_whole(shutdown_timeout)}",
    ]
    if hosts:
        options.append("--hosts=" + ",".join(hosts))
    if log_dir:
        options.append("--log-dir=" + log_dir)
    job = Job([launcher_path(), *options, *arguments, "--", *command], environment or {}, shutdown_timeout)
    with job:
        timed_out = not job.wait(timeout or math.inf)
        if timed_out:
            job.stop(signal.SIGTERM)
        return job.result(timed_out, timeout)


def _whole(seconds: float) -> int:
    if seconds != int(seconds):
        raise ValueError(f"ddp_launch.run: shutdown_timeout is {seconds}; whole seconds are wanted")
    return int(seconds)
