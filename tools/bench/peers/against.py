#!/usr/bin/env python3
"""The quick rows of peers.sh, of this build against an older one: fresh processes in turns. The old
build takes part twice, so that what it differs from itself by shows what the host alone makes of a
time; called by peers.sh --against."""
import argparse
import os
import random
import sys

import plan
from against_report import Case, copy_builds, finish
from run import Placement, run_near

LABELS = ("new", "old", "old again")


def name_of(row, label):
    return f"{row['collective']} {row['ranks']} {label.split()[1]} {row['dtype']} {row['bytes']} B"


def measure(args, tools, group, label, placement):
    """Rows of the group by the name of each, {contestant: microseconds}; says what went wrong."""
    times = {}
    problems = 0
    for who in random.sample(LABELS, len(LABELS)):
        rows, problem, _, _ = run_near(args, tools[who], group, label,
                                       len(os.sched_getaffinity(0)), placement)
        wrong = sum(row["wrong"] or 0 for row in rows)
        if problem or wrong:
            problems += 1
            print(f"peers: {who}, {group.collective} of {group.ranks}, {label}: "
                  f"{problem or f'{wrong} wrong elements'}", file=sys.stderr)
            continue
        for row in rows:
            times.setdefault(name_of(row, label), {})[who] = row["time_us"]
    return times, problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--new", required=True, help="this build")
    parser.add_argument("--old", required=True, help="the older one")
    parser.add_argument("--drivers", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=60, help="seconds of one run")
    parser.add_argument("--lock", default="", help="a file to lock during each run")
    args = parser.parse_args()
    args.quick = False  # the cores are to be near
    programs = ("ddp-launch", "ddp-bench")
    copies = copy_builds(args.new, args.old, programs, args.drivers)
    tools = {who: {name: os.path.join(copies[who.split()[0]], name) for name in programs}
             for who in LABELS}
    # The table of contestants names all of them; only ddp runs.
    for one in tools.values():
        one |= dict.fromkeys(("openmpi", "mpich", "gloo", "python", "torch"), "")
    placement = Placement(os.path.join(args.drivers, "placement_bench"))
    cases = {}
    failed = 0
    for number in range(args.rounds):
        for group in plan.make_groups(quick=True, with_torch=False, first_round=False):
            for label in plan.OURS:
                times, problems = measure(args, tools, group, label, placement)
                failed += problems
                for name, by_who in times.items():
                    cases.setdefault(name, Case(name)).add(by_who)
        print(f"peers: round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    finish(cases.values(), f"{args.rounds} rounds", failed)


if __name__ == "__main__":
    main()
