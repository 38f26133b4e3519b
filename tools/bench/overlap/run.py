#!/usr/bin/env python3
"""Runs the contestants alternately, each time in fresh processes, and writes one JSON object a run; called by
overlap.sh. A run that fails ends it all."""
import argparse
import json
import os
import subprocess
import sys

import contestants
from host import host_facts, output_of, package_version

LIMIT_S = 300


def run_one(command):
    """Milliseconds of a step with averaging, of one without after which the ranks meet, and of one without."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if result.returncode != 0:
        sys.exit(f"overlap: {' '.join(command)} failed: {result.stderr[-500:]}")
    averaging, meeting, local = map(float, result.stdout.split())
    return {"averaging_ms": averaging, "meeting_ms": meeting, "local_ms": local}


def torch_version(newest):
    if not newest:
        return package_version("python3-torch")
    return output_of([sys.executable, "-c", "import torch; print(torch.__version__)"]).strip() + " of the Python package"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="where ddp-launch is")
    parser.add_argument("--programs", required=True, help="where ddp-torch-overlap is")
    parser.add_argument("--newest", action="store_true", help="this interpreter's PyTorch is no Debian package")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--command", default="tools/bench/overlap.sh")
    args = parser.parse_args()
    nets = contestants.QUICK_NETS if args.quick else contestants.NETS
    with open(args.out, "w") as out:
        facts = {"facts": True, **host_facts(), "command": args.command, "rounds": args.rounds,
                 "newest": args.newest, "torch": torch_version(args.newest)}
        print(json.dumps(facts), file=out)
        for turn in range(args.rounds):
            first = turn % len(contestants.LABELS)  # another one begins each round
            for net in nets:
                for label in contestants.LABELS[first:] + contestants.LABELS[:first]:
                    times = run_one(contestants.command(label, net, args, sys.executable))
                    row = {"net": net.name, "contestant": label, "round": turn, **times}
                    print(json.dumps(row), file=out, flush=True)
            print(f"overlap: round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)


main()
