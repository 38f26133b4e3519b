"""Counts and times the steps of ddp-step-cost in its modes, and writes the section."""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

import host
import reporting

NETS = {
    "digits": ("64-128-10, batch 64", 20, 2000),
    "wide": ("64-3100-3100-10 (9.8 M parameters), batch 8", 2, 5),
}


# What is compared with what, by mode of ddp-step-cost.
PAIRS = {1: ("plain", "wrapped"), 2: ("wrapped", "logical")}


def command(options, ranks, net, mode, steps, valgrind=()):
    launch = [os.path.join(options.bin, "ddp-launch"), f"--nproc_per_node={ranks}", "--"]
    program = [os.path.join(options.bin, "ddp-step-cost"), net, mode, str(steps)]
    return (launch if ranks > 1 else []) + list(valgrind) + program


def instructions(options, ranks, net, mode, steps):
    """Of one step of rank 0: the difference between a run of 2 x steps and one of steps."""
    counts = []
    for count in (steps, 2 * steps):
        with tempfile.TemporaryDirectory() as folder:
            valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                        f"--log-file={folder}/%q{{RANK}}"]
            subprocess.run(command(options, ranks, net, mode, count, valgrind),
                           env={"RANK": "0", "WORLD_SIZE": "1"} | os.environ,
                           stdout=subprocess.DEVNULL, timeout=300, check=True)
            with open(f"{folder}/0", encoding="utf-8") as log:
                counts.append(int(re.search(r"Collected\s*:\s*(\d+)", log.read()).group(1)))
    return (counts[1] - counts[0]) / steps


def seconds(options, ranks, net, mode, steps):
    done = subprocess.run(command(options, ranks, net, mode, steps), capture_output=True,
                          text=True, timeout=120, check=True)
    return float(done.stdout)


def measure(options, ranks, net):
    shape, few, many = NETS[net]
    pair = PAIRS[ranks]
    counts = [instructions(options, ranks, net, mode, few) for mode in pair]
    times = [[], []]
    for _ in range(options.rounds):
        for mode, taken in zip(pair, times):
            taken.append(seconds(options, ranks, net, mode, many))
    ratios = [more / less for less, more in zip(*times)]
    return {"ranks": ranks, "net": net, "shape": shape, "instructions": counts,
            "us": [1e6 * statistics.median(taken) for taken in times],
            "ratio": statistics.median(ratios)}


def judge(rows, ranks, what):
    return reporting.judge(what, {row["net"]: row["instructions"][1] / row["instructions"][0]
                                  for row in rows if row["ranks"] == ranks}, at_most=1.01)


def table(rows, ranks, names):
    less, more = names
    return reporting.table(
        ["net", f"{less}, instructions", more, "ratio", f"{less}, us", f"{more}, us", "ratio"],
        [[row["shape"], *(f"{count:,.0f}" for count in row["instructions"]),
          f"{row['instructions'][1] / row['instructions'][0]:.5f}",
          *(f"{us:,.1f}" for us in row["us"]), f"{row['ratio']:.3f}"]
         for row in rows if row["ranks"] == ranks])


def section(options, rows):
    measures = [
        judge(rows, 1, "one rank, instructions of a step: wrapped / plain"),
        judge(rows, 2, "two ranks, instructions of a step of rank 0: `logical_ranks = 2` / none"),
    ]
    facts = host.host_facts()
    lines = ["## What DistributedDataParallel costs one rank", "",
             f"Written by `tools/bench/step_cost.sh --rounds {options.rounds}` on "
             f"{facts['date']}; nothing here is written by hand.", "", f"- Host: {host.describe_host(facts)}", "",
             "One step is forward, backward and optimiser of a fully connected net on one thread. "
             "Instructions are callgrind's, of the difference between two runs; times are medians "
             "of runs in turn.", "", *reporting.measures_table(measures), "",
             *table(rows, 1, ("plain", "wrapped")), "",
             "And as many logical ranks as ranks, two, beside none. (Instructions include those of "
             "waiting for the other rank.)", "",
             *table(rows, 2, ("none", "logical ranks"))]
    return lines, measures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--docs", required=True)
    options = parser.parse_args()
    rows = [measure(options, ranks, net) for ranks in PAIRS for net in NETS]
    lines, measures = section(options, rows)
    reporting.write_section(os.path.join(options.docs, "benchmarks.md"), "step", lines)
    reporting.print_measures(measures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
