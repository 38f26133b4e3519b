"""Times the data cases of ddp and of PyTorch in turn, in fresh processes, and writes the section."""

import argparse
import os
import statistics
import subprocess
import sys

import host
import reporting

SAMPLES, RANKS = 10_000_000, 2
ELEMENTS = 60_000 * 5  # of an epoch of the loaders
EPOCHS = {"ddp": 50, "torch": 2}  # so that a run is neither over at once nor takes minutes
WORKERS = {"ddp": (0, 1, 2), "torch": (0, 2)}
FORMS = {"tensors": "a row a sample, stacked", "batches": "whole batches by the data set"}


def numbers(command):
    """Whole numbers stay exact: a digest has 64 bits."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return [int(word) if word.isdigit() else float(word) for word in done.stdout.split()]


def measure(options):
    """Rows of numbers by case and contestant."""
    programs = {
        "ddp": [os.path.join(options.bin, "ddp-data-speed")],
        "torch": [options.python, os.path.join(os.path.dirname(__file__), "torch_data.py")],
    }
    commands = {f"sampler {who}": program + ["sampler", str(SAMPLES), str(RANKS)]
                for who, program in programs.items()}
    for form in FORMS:
        for who, program in programs.items():
            for workers in WORKERS[who]:
                commands[f"loader {who} {workers} {form}"] = (
                    program + ["loader", str(workers), str(EPOCHS[who]), form])
    rows = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            rows[name].append(numbers(command))
    return rows


def check(rows):
    """The contestants did the same work: as many indices with one digest, all elements."""
    ends = {tuple(row[2:]) for name in ("sampler ddp", "sampler torch") for row in rows[name]}
    if len(ends) != 1:
        sys.exit(f"data.sh: the samplers gave different indices: {sorted(ends)}")
    for name in rows:
        if not name.startswith("loader"):
            continue
        wanted = EPOCHS[name.split()[1]] * ELEMENTS
        for _, elements in rows[name]:
            if elements != wanted:
                sys.exit(f"data.sh: {name} gave {elements} elements, not {wanted}")


def of_rounds(rows, name, column=0):
    return [row[column] for row in rows[name]]


def ratios(numerators, denominators):
    return statistics.median(n / d for n, d in zip(numerators, denominators))


def better_torch(rows, form):
    """samples/s of each round, with the better number of workers."""
    return [max(those) for those in zip(*(of_rounds(rows, f"loader torch {workers} {form}")
                                          for workers in WORKERS["torch"]))]


def measures_of(rows):
    by_form = {}
    for form in FORMS:
        for workers in (0, 1):
            by_form[f"{form}, workers = {workers}"] = ratios(
                of_rounds(rows, f"loader ddp {workers} {form}"), better_torch(rows, form))
    return [
        reporting.judge("sampler, 10^7 samples over 2 ranks, time: torch / ddp",
                        {"first epoch": ratios(of_rounds(rows, "sampler torch"),
                                               of_rounds(rows, "sampler ddp"))}, at_least=6),
        reporting.judge("the same, growth of peak memory: torch / ddp",
                        {"first epoch": ratios(of_rounds(rows, "sampler torch", 1),
                                               of_rounds(rows, "sampler ddp", 1))}, at_least=8),
        reporting.judge("loader, batches of 30 x 5 floats, samples/s: ddp / torch in the same form",
                        by_form, at_least=20),
    ]


def section(options, rows):
    measures = measures_of(rows)
    facts = host.host_facts()
    lines = ["## Samplers and data loaders", "",
             f"Written by `tools/bench/data.sh --rounds {options.rounds}` on {facts['date']}; "
             "nothing here is written by hand.", "", f"- Host: {host.describe_host(facts)}",
             f"- PyTorch {options.torch}", "",
             "Each case is a fresh process, all in turn; medians over rounds, and of the ratios in "
             "each round. The samplers' indices have the same 64-bit digest, of numbers and order. "
             "The loaders take rows of one tensor of 60,000 x 5 floats, shuffled, one by one (a "
             "view each, stacked to [30, 5]) or as whole batches that the data set copies; each "
             "form of ddp's is judged by the same form of torch's with the better number of its "
             f"workers. The loop only counts elements, {EPOCHS['ddp']} epochs of ddp's and "
             f"{EPOCHS['torch']} of torch's; the rates are per sample.", "",
             *reporting.measures_table(measures), ""]

    def median(name, column=0):
        return statistics.median(of_rounds(rows, name, column))

    lines += reporting.table(
        ["list of a rank's indices, 10^7 samples, 2 ranks", "ms", "MiB"],
        [[who, f"{1e3 * median(name):.0f}", f"{median(name, 1) / 1024:.0f}"]
         for who, name in (("ddp::DistributedSampler", "sampler ddp"),
                           ("torch DistributedSampler", "sampler torch"))])
    names = {"ddp": "ddp::DataLoader", "torch": "torch DataLoader"}
    loaders = [[f"{names[who]}, {text}", str(workers), f"loader {who} {workers} {form}"]
               for form, text in FORMS.items() for who in names for workers in WORKERS[who]]
    lines += [""] + reporting.table(
        ["60,000 samples, batches of 30 x 5 floats", "workers", "samples/s", "us a batch"],
        [[who, workers, f"{median(name):,.0f}", f"{30e6 / median(name):.2f}"]
         for who, workers, name in loaders])
    return lines, measures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--docs", required=True)
    options = parser.parse_args()
    options.torch = subprocess.run(
        [options.python, "-c", "import torch; print(torch.__version__)"],
        capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    rows = measure(options)
    check(rows)
    lines, measures = section(options, rows)
    reporting.write_section(os.path.join(options.docs, "benchmarks.md"), "data", lines,
                            host.cpu_maker())
    reporting.print_measures(measures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
