"""Times saves beside dd, and steps with and without a save in the background; writes the section."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

import host
import reporting

RANKS = (1, 2)  # of the training


def drop(path):
    """Gone, and the disk at rest, before the next one is timed."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)
    os.sync()


def dd_seconds(options):
    path = os.path.join(options.work, "dd")
    drop(path)
    start = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={options.mib}",
                    "conv=fsync"], check=True, timeout=300, capture_output=True)
    taken = time.monotonic() - start
    drop(path)
    return taken


def save_seconds(options):
    path = os.path.join(options.work, "saved")
    drop(path)
    done = subprocess.run([os.path.join(options.bin, "ddp-checkpoint-cost"), "save", path,
                           str(options.mib)],
                          capture_output=True, text=True, timeout=300, check=True)
    drop(path)
    return float(done.stdout)


def measure_saves(options):
    pairs = []
    for turn in range(options.rounds):
        if turn % 2 == 0:
            floor = dd_seconds(options)
            pairs.append((floor, save_seconds(options)))
        else:
            ours = save_seconds(options)
            pairs.append((dd_seconds(options), ours))
    floor, ours = (statistics.median(times) for times in zip(*pairs))
    return {"dd": floor, "save": ours, "ratio": statistics.median(d / s for d, s in pairs)}


def measure_steps(options, ranks):
    path = os.path.join(options.work, "steps")
    command = [os.path.join(options.bin, "ddp-launch"), f"--nproc_per_node={ranks}", "--",
               os.path.join(options.bin, "ddp-checkpoint-cost"), "steps", path, str(options.every),
               str(options.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    drop(path)
    blocks = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    without, with_save, held = (statistics.median(times) for times in zip(*blocks))
    added = statistics.median(w - p for p, w, _ in blocks) * options.every
    return {"ranks": ranks, "added": added, "without": without, "with": with_save, "held": held,
            "ratio": statistics.median(w / p for p, w, _ in blocks)}


def section(options, saves, steps):
    measures = [reporting.judge(f"saving {options.mib} MiB: bytes a second over those of `dd conv=fsync`",
                                {f"{options.mib} MiB": saves["ratio"]}, at_least=0.8),
                reporting.judge(f"step with a save in the background every {options.every} steps / without",
                                {f"{row['ranks']} ranks": row["ratio"] for row in steps}, at_most=1.02)]
    facts = host.host_facts()
    system = host.output_of(["stat", "-f", "-c", "%T", options.work]).strip()
    lines = ["## What checkpoints cost", "",
             f"Written by `tools/bench/checkpoint.sh --rounds {options.rounds} --mib {options.mib} --every "
             f"{options.every}` on {facts['date']}; nothing here is written by hand.", "",
             f"- Host: {host.describe_host(facts)}; file system {system}",
             "- A save lasts from the call of `save` to its return, when both files are on the disk; `dd` writes as "
             "many zeros from `/dev/zero` to one file. They take turns; medians, and the median of the pairs' ratios.",
             "- A step is forward, backward and optimiser of the net 64-3100-3100-10 (9.8 M parameters; 75 MiB with the "
             f"momentum), batch 8 a rank, in a `DistributedDataParallel`. Blocks of {options.every} steps take turns: "
             "without a save, and with a `save_async` before and a `wait` after the steps, both of which count. What a save adds does not depend on how many steps are between two.", "",
             *reporting.measures_table(measures), ""]
    rate = options.mib * 2**20 / 1e9
    lines += reporting.table(["", "s", "GB/s"],
                             [[name, f"{saves[key]:.3f}", f"{rate / saves[key]:.2f}"]
                              for name, key in (("`dd conv=fsync`", "dd"), ("`save`", "save"))])
    lines += ["", *reporting.table(
        ["ranks", "step without, ms", "step with, ms", "ratio", "a save adds, ms",
         "of which it holds the training up, ms"],
        [[str(row["ranks"]), f"{1e3 * row['without']:.1f}", f"{1e3 * row['with']:.1f}",
          f"{row['ratio']:.4f}", f"{1e3 * row['added']:.0f}", f"{1e3 * row['held']:.1f}"] for row in steps])]
    return lines, measures


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "work", "docs"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rounds", "mib", "every"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    saves = measure_saves(options)
    steps = [measure_steps(options, ranks) for ranks in RANKS]
    lines, measures = section(options, saves, steps)
    reporting.write_section(os.path.join(options.docs, "benchmarks.md"), "checkpoint", lines,
                            host.cpu_maker())
    reporting.print_measures(measures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
