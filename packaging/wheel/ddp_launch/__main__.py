"""python -m ddp_launch ...: ddp-launch, in this process's place."""
import os
import sys

from ddp_launch import LaunchError, launcher_path

try:
    path = launcher_path()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        raise LaunchError(f"cannot start {path}: {error.strerror}") from error
except LaunchError as error:
    sys.exit(f"ddp_launch: {error}")
