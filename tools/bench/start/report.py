#!/usr/bin/env python3
"""report.py ROWS DOCS: writes its section of DOCS/benchmarks.md from what run.py wrote. Every
number and every verdict is computed from the rows."""
import collections
import json
import os
import sys
from statistics import median

from contestants import FIRST_RANKS, STAGES, START_RANKS
from host import describe_host
from reporting import factor, judge, measures_table, number, print_measures, table, write_section

LABELS = ["ddp", "floor", "MPICH", "Open MPI", "torchrun"]


class Results:
    def __init__(self, path):
        self.facts = {}
        self.times = collections.defaultdict(dict)  # (case, ranks, contestant) -> round -> us
        self.problems = collections.Counter()       # the same key -> count
        with open(path) as file:
            for row in map(json.loads, file):
                if "facts" in row:
                    self.facts = row
                    continue
                key = (row["case"], row["ranks"], row["contestant"])
                if "problem" in row:
                    self.problems[(*key, row["problem"].split(":")[0])] += 1
                else:
                    self.times[key][row["round"]] = row["us"]

    def time(self, case, ranks, label):
        times = self.times.get((case, ranks, label), {})
        return median(times.values()) if times else None

    def ratio(self, case, ranks, over, under):
        """The median of the rounds' ratios."""
        a = self.times.get((case, ranks, over), {})
        b = self.times.get((case, ranks, under), {})
        ratios = [a[turn] / b[turn] for turn in a.keys() & b.keys()]
        return median(ratios) if ratios else None


def make_measures(results):
    def ratios(case, all_ranks, over, under):
        return {f"N = {n}": results.ratio(case, n, over, under) for n in all_ranks}

    failures = sum(count for key, count in results.problems.items() if key[2] in ("ddp", *STAGES))
    return [
        judge("start: MPICH / ours, N = 1 and 8", ratios("start", [1, 8], "MPICH", "ddp"), 1,
              strictly=True),
        judge("start: ours / MPICH, N = 32", ratios("start", [32], "ddp", "MPICH"), at_most=1.05),
        judge("start: Open MPI / ours", ratios("start", START_RANKS, "Open MPI", "ddp"), 4),
        judge("start: torchrun / ours", ratios("start", [1, 8], "torchrun", "ddp"), 100),
        judge("start: ours / floor, N = 8 and 32", ratios("start", [8, 32], "ddp", "floor"),
              at_most=2),
        judge("first all-reduce: MPICH / ours", ratios("first", FIRST_RANKS, "MPICH", "ddp"), 4),
        judge("first all-reduce: Open MPI / ours", ratios("first", FIRST_RANKS, "Open MPI", "ddp"),
              4),
        judge("first all-reduce: torchrun + Gloo / ours", ratios("first", [2], "torchrun", "ddp"),
              200),
        judge("first all-reduce: ours / floor", ratios("first", FIRST_RANKS, "ddp", "floor"),
              at_most=2),
    ], failures


def times_table(results, case, all_ranks):
    rows = []
    for n in all_ranks:
        times = [results.time(case, n, label) for label in LABELS]
        rows.append([
            str(n), *(number(time / 1000 if time else None) for time in times),
            *(factor(results.ratio(case, n, label, "ddp")) for label in LABELS[2:]),
            factor(results.ratio(case, n, "ddp", "floor"))])
    return table(["N", "ddp ms", "floor ms", "MPICH ms", "Open MPI ms", "torchrun ms",
                  "MPICH / ddp", "Open MPI / ddp", "torchrun / ddp", "ddp / floor"], rows)


def stages_table(results):
    """What each stage takes beyond the one before: the median of the rounds' differences."""
    names = ["floor", *STAGES, "ddp"]
    rows = []
    for n in FIRST_RANKS:
        floor = results.time("first", n, "floor")
        row = [str(n), number(floor / 1000 if floor else None)]
        for before, after in zip(names, names[1:]):
            a = results.times.get(("first", n, before), {})
            b = results.times.get(("first", n, after), {})
            more = [b[turn] - a[turn] for turn in a.keys() & b.keys()]
            row.append(f"{median(more) / 1000:.2f}" if more else "-")
        rows.append(row)
    return table(["N", "floor ms", "front and agent", "libraries", "group",
                  "all-reduce and its end"], rows)


def repeats_line(results):
    done = len(results.times.get(("repeat", 32, "ddp"), {}))
    wanted = results.facts["repeats"]
    if done + sum(n for key, n in results.problems.items() if key[0] == "repeat") < wanted:
        return f"The {wanted} starts of 32 workers in a row were not measured."
    verdict = "met" if done == wanted else "**missed**"
    return (f"`ddp-launch --nproc_per_node=32 /bin/true`, {wanted} times, each within "
            f"{results.facts['limit_s']:g} s: {done} ended well, "
            f"{wanted - done} did not ({verdict}).")


def problems_of(results):
    if not results.problems:
        return ["Every start ended within its limit."]
    rows = [[case, str(ranks), label, what, str(count)]
            for (case, ranks, label, what), count in results.problems.items()]
    return ["Left out of the medians:", "", *table(["case", "N", "who", "what", "starts"], rows)]


def main():
    rows, docs = sys.argv[1:]
    results = Results(rows)
    facts = results.facts
    measures, failures = make_measures(results)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [
        "## Start: how soon a job runs, and computes", "",
        f"Written by `{facts['command']}` on {facts['date']}; nothing here is written by hand. "
        f"Rounds: {facts['rounds']}.", "",
        f"- Host: {describe_host(facts)}",
        f"- ddp {facts['ddp']}; {versions} (Debian packages); torchrun with "
        "`--monitor_interval 0.1`, as its own 5 s would be most of its time",
        "- A time is that of the whole process, from its spawn to its end: the median over rounds, "
        "in which all take turns. A ratio is the median of the rounds' ratios.",
        "- *start*: N times `/bin/true`; *floor*: a bare loop of posix_spawn and wait.",
        "- *first all-reduce*: N workers that join, all-reduce 4 bytes and end; *floor*: a bare "
        "loop that spawns N copies of a static program as large as ddp's worker, which meet in "
        "shared memory. ddp's worker is linked "
        "with `ddp_start_fast` of its CMake package (libstdc++ inside, libc shared); the peers' "
        "programs are linked by their `mpicxx` and need no libstdc++.", "",
        *measures_table(measures), "", repeats_line(results), "",
        "### Start", "", *times_table(results, "start", START_RANKS), "",
        "### First all-reduce", "", *times_table(results, "first", FIRST_RANKS), "",
        "Where the time goes, ms; each column is what a job takes that goes so far, beyond one "
        "that ends a column before (the median of the rounds' differences; such jobs end a stage "
        "earlier, so that a stage in which ranks wait for each other has what they waited for):", "",
        "- *front and agent*: ddp-launch with the floor's program as worker, which ends at once, "
        "beyond the floor;",
        "- *libraries*: with ddp's worker instead, which ends in main: its mapping, relocation and "
        "constructors;",
        "- *group*: which ends with the group made: the store reached, the region mapped;",
        "- *all-reduce and its end*: the first one, and the group's.", "",
        *stages_table(results), "",
        *problems_of(results),
    ]
    write_section(os.path.join(docs, "benchmarks.md"), "start", lines, results.facts["maker"])
    print_measures(measures)
    print(repeats_line(results))
    if failures:
        sys.exit(f"start: {failures} starts of ddp-launch did not end well")


main()
