#!/usr/bin/env python3
"""Start and first all-reduce of this build against an older one: fresh processes in turns, timed by
timer.cpp. The old build takes part twice, so that what it differs from itself by shows what the
host alone makes of a time; called by start.sh --against."""
import argparse
import random
import sys
from dataclasses import dataclass
from statistics import median

from against_report import Case, copy_builds, finish
from contestants import FIRST_RANKS, START_RANKS
from timing import time_one

# In each round the starts of a contestant are the median of so many.
STARTS_A_ROUND = 5


@dataclass
class Contestant:
    label: str
    bin: str

    def command(self, case, ranks):
        program = f"{self.bin}/ddp-first-all-reduce" if case == "first" else "/bin/true"
        return [f"{self.bin}/ddp-launch", f"--nproc_per_node={ranks}", program]


def one_round(contestants, case, ranks, args):
    """Microseconds by label; nothing of a contestant of whom a start failed."""
    times = {contestant.label: [] for contestant in contestants}
    problems = {}
    for _ in range(STARTS_A_ROUND):
        for contestant in random.sample(contestants, len(contestants)):
            microseconds, problem = time_one(args.timer, args.limit,
                                             contestant.command(case, ranks), {})
            if problem:
                problems[contestant.label] = problem
            else:
                times[contestant.label].append(microseconds)
    return {label: median(values) for label, values in times.items() if values}, problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--new", required=True, help="this build")
    parser.add_argument("--old", required=True, help="the older one")
    parser.add_argument("--drivers", required=True, help="where timer is, and copies go")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=10, help="seconds of one start")
    args = parser.parse_args()
    args.timer = f"{args.drivers}/timer"
    copies = copy_builds(args.new, args.old, ("ddp-launch", "ddp-first-all-reduce"), args.drivers)
    contestants = [Contestant("new", copies["new"]), Contestant("old", copies["old"]),
                   Contestant("old again", copies["old"])]
    cases = {("start", ranks): Case(f"start of {ranks}") for ranks in START_RANKS}
    cases |= {("first", ranks): Case(f"first all_reduce of {ranks}") for ranks in FIRST_RANKS}
    failed = 0
    for number in range(args.rounds):
        for (kind, ranks), case in cases.items():
            times, problems = one_round(contestants, kind, ranks, args)
            case.add(times)
            for label, problem in problems.items():
                failed += 1
                print(f"start: {label}, {case.name}: {problem}", file=sys.stderr)
        print(f"start: round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    finish(cases.values(), f"{args.rounds} rounds of {STARTS_A_ROUND} starts", failed)


if __name__ == "__main__":
    main()
