#!/usr/bin/env python3
"""report.py ROWS DOCS: writes its chart and its section of DOCS/benchmarks.md from what
run.py wrote. Every number and every verdict is computed from the rows."""
import collections
import os
import sys
from statistics import median

from chart import write_chart
from host import describe_host
from measures import OTHERS, make_measures, name_of
from plan import PROCESSES, REPEATED_BYTES
from reporting import AT_FLOOR, factor, measures_table, number, print_measures, table, write_section
from results import PEERS, Results


def chart_of(maker):
    return f"benchmarks_{maker.lower()}.svg"


def head_of(results, facts):
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [
        "## The collectives against MPI, oneCCL and Gloo", "",
        f"Written by `{facts['command']}` on {facts['date']}; nothing here is written by hand. "
        f"Rounds: {facts['rounds']}."
        + (f" The other rows are of {', '.join(dict.fromkeys(facts['earlier']))}." if "earlier" in facts else ""), "",
        f"- Host: {describe_host(facts)}",
        f"- ddp {facts['ddp']}, backend shm; {versions}",
        "- Every rank rewrites its input before each call and meets the others in a barrier of the "
        "library; the call blocks until its result may be used, and a barrier follows. A time is the mean over ranks, the "
        "median over iterations, then over the fresh processes of a round "
        f"({PROCESSES} by turns with the others' where they measure no more than "
        f"{name_of(REPEATED_BYTES)}, else one), then "
        "over rounds. A ratio is the median of the rounds' ratios.",
        "- A run counts when a cache line went fast between the cores before and after it "
        "(tools/bench/peers/placement.cpp), or in the last of many tries: a virtual machine's "
        "cores move, and where they share no cache all take longer. Rows measured with cores that were "
        f"far: {results.far} of {results.rows}.",
        "- *user*: any memory of the caller's. *shared*: memory of `group.allocate()`. *adopted*: "
        "the caller's, by `group.adopt()`.",
        "- *best peer*: in each round the fastest of the peers below but Gloo and PyTorch: Debian's Open MPI and "
        "MPICH by default and with a malloc that keeps its memory, and (2 ranks) Open MPI with its shared-memory "
        "transport tuned; the newest of the Python package index, all with such a malloc, Intel MPI with more "
        "ranks than cores also in a mode in which it waits, oneCCL without threads of its own. With more ranks "
        "than cores Open MPI yields.",
        "- *floor*: the traffic that no algorithm avoids, at the memory rate that the same process "
        "measured (tools/bench/floor.hpp).",
        "- *at best*: of the worst row, the ratio that an implementation would reach whose time equals the row's "
        "floor, or that of bare loops which move the same data between these processes and do nothing "
        "else (tools/bench/bare.hpp), whichever is longer; measured in the same process. A bare loop that took "
        "longer than we did is no bound: a row may be faster than its bare loop and still miss. *At the "
        f"floor* is a row that misses what is wanted, as it would at best, and takes at most "
        f"{AT_FLOOR} of that time.",
        f"- Wrong elements, over all rows of all contestants: {results.wrong}.", "",
        f"![bus bandwidth]({chart_of(facts['maker'])})", "",
    ]


def reduce_tables(results):
    lines = []
    for ranks in sorted({key[1] for key in results.cells if key[0] == "all_reduce"}):
        lines += [f"### all_reduce, {ranks} ranks, float32 sum", ""]
        rows = []
        for size in results.sizes("all_reduce", ranks):
            key = ("all_reduce", ranks, "float32", size)
            rows.append([
                name_of(size), *(number(results.time(key, name)) for name in
                                 ("ddp user", "ddp shared", PEERS, "Gloo", "PyTorch")),
                *(factor(results.ratio(key, PEERS, ours)) for ours in ("ddp user", "ddp shared")),
                *(factor(results.ratio(key, "Gloo", ours)) for ours in ("ddp user", "ddp shared")),
                number(results.floor(key)), factor(results.over_floor(key, "ddp user")),
                factor(results.over_floor(key))])
        lines += table(["bytes", "user us", "shared us", "best peer us", "Gloo us", "PyTorch us",
                        "peer / user", "peer / shared", "Gloo / user", "Gloo / shared", "floor us",
                        "user / floor", "shared / floor"], rows)
        lines += ["", "The peers, us:", ""]
        sizes = results.sizes("all_reduce", ranks)
        names = [name for name in PEERS
                 if any(results.time(("all_reduce", ranks, "float32", size), name) for size in sizes)]
        rows = [[name_of(size), *(number(results.time(("all_reduce", ranks, "float32", size), name))
                                  for name in names)] for size in sizes]
        lines += table(["bytes", *names], rows) + [""]
    return lines


def other_tables(results):
    rows = []
    for kind in [*OTHERS, "barrier"]:
        for size in results.sizes(kind, 2):
            key = (kind, 2, "float32", size)
            rows.append([
                kind, name_of(size), *(number(results.time(key, name)) for name in
                                       ("ddp user", "ddp shared", PEERS, "Gloo")),
                factor(results.ratio(key, PEERS, "ddp user")),
                factor(results.ratio(key, PEERS, "ddp shared")),
                factor(results.ratio(key, "Gloo", "ddp user"))])
    lines = ["### The other collectives, 2 ranks, float32", ""]
    lines += table(["collective", "bytes", "user us", "shared us", "best peer us", "Gloo us",
                    "peer / user", "peer / shared", "Gloo / user"], rows)
    rows = []
    for dtype in ("float16", "bfloat16"):
        for size in results.sizes("all_reduce", 2, dtype):
            for ours in ("ddp user", "ddp shared"):
                rows.append([dtype, name_of(size), ours.split()[1],
                             number(results.time(("all_reduce", 2, dtype, size), ours)),
                             factor(results.element_rate(dtype, size, ours))])
    lines += ["", "### Half types, all_reduce, 2 ranks", "",
              *table(["type", "bytes", "path", "us", "elements/s over float32's"], rows), ""]
    return lines


def bare_table(results):
    lines = ["### Bare loops beside ours", ""]
    rows = []
    for key in sorted(results.cells):
        for ours in ("ddp user", "ddp shared"):
            bares = [row["bare_us"] for row in results.cells[key].get(ours, {}).values()
                     if "bare_us" in row]
            if not bares:
                continue
            kind, ranks, _, size = key
            bare, time = median(bares), results.time(key, ours)
            rows.append([kind, str(ranks), name_of(size), ours.split()[1], number(time),
                         number(bare), factor(time / bare)])
    return lines + table(["collective", "ranks", "bytes", "path", "us", "bare us", "us / bare"],
                         rows) + [""]


def problems_of(results):
    lines = ["### Runs that were left out", ""]
    if not results.problems:
        return lines + ["None: every run ended within its limit."]
    counts = collections.Counter(
        (row["contestant"], row["collective"], row["ranks"], row["problem"].split(":")[0])
        for row in results.problems)
    return lines + table(["contestant", "collective", "ranks", "what", "runs"],
                         [[*map(str, what), str(count)] for what, count in counts.items()])


def main():
    rows, docs = sys.argv[1:]
    results = Results(rows)
    measures = make_measures(results)
    maker = results.facts["maker"]
    lines = head_of(results, results.facts) + ["### Measures", "", *measures_table(measures), ""]
    lines += reduce_tables(results) + other_tables(results) + bare_table(results)
    lines += problems_of(results)
    write_section(os.path.join(docs, "benchmarks.md"), "collectives", lines, maker)
    write_chart(results, os.path.join(docs, chart_of(maker)))
    print_measures(measures)


main()
