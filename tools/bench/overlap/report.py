#!/usr/bin/env python3
"""report.py ROWS DOCS: writes its section of DOCS/benchmarks.md from what run.py wrote. Every number and every verdict
is computed from the rows."""
import collections
import json
import os
import sys
from statistics import median

from contestants import COPIES, LABELS, NETS, OFF, OURS, QUICK_NETS, RANKS, VIEWS
from host import describe_host
from reporting import judge, measures_table, number, print_measures, table, write_section


class Results:
    def __init__(self, path):
        self.rows = collections.defaultdict(list)  # (net, contestant) -> rows
        with open(path) as file:
            self.facts, *rows = map(json.loads, file)
        for row in rows:
            self.rows[row["net"], row["contestant"]].append(row)
        self.nets = [net for net in NETS + QUICK_NETS if (net.name, OURS) in self.rows]

    def of(self, net, label, value):
        return median(value(row) for row in self.rows[net.name, label])

    def exposed(self, net, label):
        return self.of(net, label, lambda row: row["averaging_ms"] - row["meeting_ms"])

    def exposed_and_waits(self, net, label):
        return self.of(net, label, lambda row: row["averaging_ms"] - row["local_ms"])

    def waits(self, net, label):
        return self.of(net, label, lambda row: row["meeting_ms"] - row["local_ms"])

    def lengthened(self, net, label):
        return self.of(net, label, lambda row: row["averaging_ms"] / row["meeting_ms"])

    def share(self, net, label):
        return self.of(net, label, lambda row: 1 - row["meeting_ms"] / row["averaging_ms"])


def with_averaging(row):
    return row["averaging_ms"]


def make_measures(results):
    def ratios(of, other):
        return {f"{net.name} parameters": of(net, OURS) / of(net, other) if of(net, other) > 0 else None
                for net in results.nets}

    steps = {f"{net.name} parameters": results.of(net, OURS, with_averaging) / results.of(net, OFF, with_averaging)
             for net in results.nets}
    # The same within a process: whole processes of one contestant differ by a third.
    lengthened = {f"{net.name} parameters": results.lengthened(net, OURS) / results.lengthened(net, OFF)
                  for net in results.nets}
    faster = {f"{net.name} parameters": results.of(net, COPIES, with_averaging) / results.of(net, OURS, with_averaging)
              for net in results.nets}
    newest = results.facts.get("newest", False)
    return [judge("step with averaging: ours / ours without overlap", steps, at_most=1.03),
            judge("step with averaging, in steps without: ours / ours without overlap", lengthened, at_most=1.03),
            judge("step with averaging: PyTorch on Gloo / ours", faster, at_least=1.7 if newest else 1,
                  strictly=not newest),
            *(judge(f"{what}: ours / PyTorch on Gloo{rest}", ratios(of, other), at_most=0.1 if newest else 0.2)
              for what, of in (("exposed time", results.exposed),
                               ("exposed time and waits", results.exposed_and_waits))
              for other, rest in ((COPIES, ""), (VIEWS, ", gradients as bucket views")))]


def lines(results, measures):
    facts = results.facts
    rows = []
    for net in results.nets:
        for label in LABELS:
            local = results.of(net, label, lambda row: row["local_ms"])
            averaging = results.of(net, label, lambda row: row["averaging_ms"])
            rows.append([f"{net.parameters() / 1e6:.1f} M", label, number(local, 4), number(averaging, 4),
                         number(results.waits(net, label)), number(results.exposed(net, label)),
                         f"{100 * results.share(net, label):.1f} %"])
    return [
        "## How much communication a step shows" + (", newest PyTorch" if facts.get("newest") else ""),
        "",
        f"{facts['date']}: {describe_host(facts)}. `{facts['command']}`; PyTorch and LibTorch {facts['torch']}. Square "
        f"linear layers with ReLU, batch {results.nets[0].batch} a rank, float32, SGD, {RANKS} ranks started by "
        "`ddp-launch` with one compute thread each; default bucket sizes. Exposed is the median step with averaging "
        "minus the median step without (`no_sync`) after which the ranks meet in a barrier, in the same process: what "
        "the faster rank waits for the slower, where others slow one down, is no communication, and is shown as "
        "*waits* (the latter minus a step without a barrier); the two are judged together, too. "
        f"Medians over {facts['rounds']} fresh runs.",
        "",
        *measures_table(measures),
        "",
        *table(["parameters", "DistributedDataParallel", "ms without averaging", "ms with", "waits ms",
                "exposed ms", "share of the step"], rows),
    ]


def main():
    results = Results(sys.argv[1])
    measures = make_measures(results)
    name = "overlap_newest" if results.facts.get("newest", False) else "overlap"
    write_section(os.path.join(sys.argv[2], "benchmarks.md"), name, lines(results, measures),
                  results.facts["maker"])
    print_measures(measures)


main()
