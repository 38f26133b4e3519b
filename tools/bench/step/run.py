"""Counts and times the steps of ddp-step-cost in its modes, and writes the section."""

import argparse
import os
import re
import statistics
import subprocess
import sys

import host
import reporting

NETS = {
    "digits": ("64-128-10, batch 64", 20, 2000),
    "wide": ("64-3100-3100-10 (9.8 M parameters), batch 8", 2, 5),
}


def command(options, net, mode, steps):
    return [os.path.join(options.bin, "ddp-step-cost"), net, mode, str(steps)]


def instructions(options, net, mode, steps):
    """Of one step: the difference between a run of 2 x steps and one of steps."""
    counts = []
    for count in (steps, 2 * steps):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
            + command(options, net, mode, count),
            capture_output=True, text=True, timeout=300, check=True)
        counts.append(int(re.search(r"Collected\s*:\s*(\d+)", done.stderr).group(1)))
    return (counts[1] - counts[0]) / steps


def seconds(options, net, mode, steps):
    done = subprocess.run(command(options, net, mode, steps), capture_output=True, text=True,
                          timeout=120, check=True)
    return float(done.stdout)


def measure(options, net):
    shape, few, many = NETS[net]
    plain, wrapped = (instructions(options, net, mode, few) for mode in ("plain", "wrapped"))
    times = {"plain": [], "wrapped": []}
    for _ in range(options.rounds):
        for mode in times:
            times[mode].append(seconds(options, net, mode, many))
    ratios = [w / p for p, w in zip(times["plain"], times["wrapped"])]
    return {"net": net, "shape": shape, "plain": plain, "wrapped": wrapped,
            "plain_us": 1e6 * statistics.median(times["plain"]),
            "wrapped_us": 1e6 * statistics.median(times["wrapped"]),
            "ratio": statistics.median(ratios)}


def measure_logical(options, net):
    """Two ranks without logical ranks and with two. Callgrind does not know pidfd_open, which
    ranks of one host need."""
    launch = [os.path.join(options.bin, "ddp-launch"), "--nproc_per_node=2", "--"]
    shape, _, many = NETS[net]
    pairs = []
    for _ in range(options.rounds):
        done = subprocess.run(launch + command(options, net, "logical", many),
                              capture_output=True, text=True, timeout=120, check=True)
        pairs.append([float(word) for word in done.stdout.split()])
    none, logical = (1e6 * statistics.median(times) for times in zip(*pairs))
    return {"net": net, "shape": shape, "none_us": none, "logical_us": logical,
            "ratio": statistics.median(more / less for less, more in pairs)}


def section(options, rows, logical):
    measures = [reporting.judge("one rank, instructions of a step: wrapped / plain",
                                {row["net"]: row["wrapped"] / row["plain"] for row in rows},
                                at_most=1.01),
                reporting.judge("two ranks, time of a step: `logical_ranks = 2` / none",
                                {row["net"]: row["ratio"] for row in logical}, at_most=1.01)]
    facts = host.host_facts()
    lines = ["## What DistributedDataParallel costs one rank", "",
             f"Written by `tools/bench/step_cost.sh --rounds {options.rounds}` on "
             f"{facts['date']}; nothing here is written by hand.", "", f"- Host: {host.describe_host(facts)}", "",
             "One step is forward, backward and optimiser of a fully connected net on one thread. "
             "Instructions are callgrind's, of the difference between two runs; times are medians "
             "of runs in turn.", "", *reporting.measures_table(measures), ""]
    lines += reporting.table(
        ["net", "plain, instructions", "wrapped", "ratio", "plain, us", "wrapped, us", "ratio"],
        [[row["shape"], f"{row['plain']:,.0f}", f"{row['wrapped']:,.0f}",
          f"{row['wrapped'] / row['plain']:.5f}", f"{row['plain_us']:,.1f}",
          f"{row['wrapped_us']:,.1f}", f"{row['ratio']:.3f}"] for row in rows])
    lines += ["", "Two ranks, each with as many logical ranks as there are ranks and with none, "
              "a step of one and a step of the other in turn:", ""]
    lines += reporting.table(
        ["net", "none, us", "logical ranks, us", "ratio"],
        [[row["shape"], f"{row['none_us']:,.1f}", f"{row['logical_us']:,.1f}",
          f"{row['ratio']:.3f}"] for row in logical])
    return lines, measures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--docs", required=True)
    options = parser.parse_args()
    rows = [measure(options, net) for net in NETS]
    logical = [measure_logical(options, net) for net in NETS]
    lines, measures = section(options, rows, logical)
    reporting.write_section(os.path.join(options.docs, "benchmarks.md"), "step", lines,
                            host.cpu_maker())
    reporting.print_measures(measures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
