"""One command as a fresh process, timed by timer.cpp; nothing of it is left."""
import os
import subprocess
import time

from host import MARK, kill_all

TOO_LONG = 3  # timer.cpp's exit code


def time_one(timer, limit_s, command, environment):
    """Microseconds, or None and why."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    result = subprocess.run([timer, str(limit_s), *command], capture_output=True, text=True,
                            env={**os.environ, **environment, MARK: mark})
    if result.returncode == 0:
        return float(result.stdout), None
    kill_all(mark)
    if result.returncode == TOO_LONG:
        return None, "hang"
    return None, f"failed: {' '.join(result.stderr[-200:].split())}"
