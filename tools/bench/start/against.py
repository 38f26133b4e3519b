#!/usr/bin/env python3
"""Start and first all-reduce of this build against an older one: fresh processes in turns, timed by
timer.cpp. The old build takes part twice, so that what it differs from itself by shows what the
host alone makes of a time; called by start.sh --against."""
import argparse
import random
import sys
from dataclasses import dataclass
from statistics import median

from against_report import Case, print_cases
from contestants import FIRST_RANKS, START_RANKS
from host import describe_host, host_facts
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
    parser.add_argument("--new", required=True, help="the bin folder of this build")
    parser.add_argument("--old", required=True, help="the bin folder of the older one")
    parser.add_argument("--timer", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=10, help="seconds of one start")
    args = parser.parse_args()
    contestants = [Contestant("new", args.new), Contestant("old", args.old),
                   Contestant("old again", args.old)]
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
    print(f"{describe_host(host_facts())}; {args.rounds} rounds of {STARTS_A_ROUND} starts")
    outside = print_cases(cases.values())
    if failed:
        print(f"{failed} starts did not end well")
    sys.exit(1 if outside or failed else 0)


if __name__ == "__main__":
    main()
