"""python -m ddp_launch ...: ddp-launch, in this process's place."""
import os
import sys

from ddp_launch import LaunchError, launcher_path

try:
    path = launcher_path()
    os.execv(path, [path, *sys.argv[1:]])
except (LaunchError, OSError) as error:
    sys.exit(f"ddp_launch: {error}")
