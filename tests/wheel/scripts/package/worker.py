"""Started as a module."""
import os
import sys

from . import __name__ as package

print(f"{package} {sys.argv[1:]} {__name__} {os.environ['RANK']} {os.environ['WORLD_SIZE']}\n", end="", flush=True)
