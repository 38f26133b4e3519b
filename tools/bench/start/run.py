#!/usr/bin/env python3
"""Starts ddp-launch and its peers alternately, each time as a fresh process timed by timer.cpp, and
writes one JSON object a start. A start that fails or exceeds its limit is recorded as such, and
nothing of it is left; called by start.sh."""
import argparse
import json
import os
import sys
import time

import contestants
from host import host_facts, output_of, package_version
from timing import time_one


class Recorder:
    def __init__(self, args, out):
        self.args, self.out, self.problems = args, out, 0

    def measure(self, case, ranks, label, number, limit_s):
        entry = contestants.entry(case, label, ranks, self.args)
        microseconds, problem = time_one(os.path.join(self.args.drivers, "timer"), limit_s,
                                         entry.command, entry.environment)
        row = {"case": case, "ranks": ranks, "contestant": label, "round": number}
        row |= {"problem": problem} if problem else {"us": microseconds}
        print(json.dumps(row), file=self.out, flush=True)
        if problem and problem != "hang":
            self.problems += 1
            print(f"start: {label}, {ranks} ranks: {problem}", file=sys.stderr)


def run_rounds(record, args):
    begin = time.monotonic()
    for number in range(args.rounds):
        for case, ranks, labels in contestants.groups(args, number):
            turn = number % len(labels)  # another one begins each round
            for label in labels[turn:] + labels[:turn]:
                record.measure(case, ranks, label, number, args.limit)
        print(f"start: round {number + 1} of {args.rounds} after "
              f"{time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    for number in range(args.repeats):
        record.measure("repeat", 32, "ddp", number, args.limit)


def facts(args):
    versions = {"Open MPI": package_version("libopenmpi-dev"),
                "MPICH": package_version("libmpich-dev")}
    if args.torch:
        versions["PyTorch"] = package_version("python3-torch")
    ddp = output_of([os.path.join(args.bin, "ddp-launch"), "--version"]).split()[-1]
    return {"facts": True, **host_facts(), "command": args.command, "rounds": args.rounds,
            "repeats": args.repeats, "limit_s": args.limit, "ddp": ddp, "versions": versions}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="where ddp-launch is")
    parser.add_argument("--drivers", required=True, help="where timer and the drivers are")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--limit", type=float, default=10, help="seconds of one start")
    parser.add_argument("--torch", default="", help="the python3 that has PyTorch")
    parser.add_argument("--torch-rounds", type=int, default=3)
    parser.add_argument("--command", default="tools/bench/start.sh")
    args = parser.parse_args()
    with open(args.out, "w") as out:
        print(json.dumps(facts(args)), file=out, flush=True)
        record = Recorder(args, out)
        run_rounds(record, args)
    sys.exit(1 if record.problems else 0)


main()
