"""Two hosts of one machine, and all_reduce between them. Started by hosts.sh, in namespaces."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import host
import reporting
from reporting import factor, judge, number, table

MIB = 1 << 20
ADDRESSES = ("10.78.0.1", "10.78.0.2")
HOSTS = ("bench1", "bench2")
PORT = 29531
RANKS = 4  # of each host
SIZES = (4, 1024, 65536, MIB, 16 * MIB, 64 * MIB)
LARGE = (16 * MIB, 64 * MIB)


def name_of(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def run(*command):
    subprocess.run(command, check=True)


def make_hosts():
    run("mount", "-t", "tmpfs", "none", "/run")
    for name in HOSTS:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "link", "add", "cable", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable",
        "netns", HOSTS[1])
    for name, address in zip(HOSTS, ADDRESSES):
        run("ip", "-n", name, "addr", "add", address + "/24", "dev", "cable")
        run("ip", "-n", name, "link", "set", "cable", "up")
    while not all(cable_is_up(name) for name in HOSTS):  # UCX takes no other; it takes a second
        time.sleep(0.05)


def cable_is_up(name):
    text = subprocess.run(["ip", "-n", name, "-j", "link", "show", "cable"], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(text)[0]["operstate"] == "UP"


def limit_cable(rate):
    for name in HOSTS:
        run("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst",
            "512k", "latency", "50ms")


def free_cable():
    for name in HOSTS:
        run("tc", "-n", name, "qdisc", "del", "dev", "cable", "root")


def sent_bytes():
    """Of the first host, as its cable counts them."""
    text = subprocess.run(["ip", "-n", HOSTS[0], "-s", "-j", "link", "show", "cable"], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(text)[0]["stats64"]["tx"]["bytes"]


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory()

    def on_both(self, commands, limit=120):
        """One command a host; what the first one printed."""
        running = []
        for name, command in reversed(list(zip(HOSTS, commands))):
            words = ["ip", "netns", "exec", name, *command]
            running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            text=True))
        try:
            done = [process.communicate(timeout=limit) for process in running]
        finally:
            for process in running:
                process.kill()
        for process, (out, err) in zip(running, done):
            if process.returncode != 0:
                raise SystemExit(f"hosts.sh: {' '.join(process.args)} failed:\n{out}{err}")
        return done[-1][0]

    def job(self, ranks, program, environment=()):
        launch = [self.options.bin + "/ddp-launch", "--nnodes=2", f"--nproc-per-node={ranks}",
                  f"--master-addr={ADDRESSES[0]}", f"--master-port={PORT}", "--status=off"]
        return self.on_both([["env", f"DDP_HOST_ID={name}", *environment, *launch,
                              f"--node-rank={index}", *program]
                             for index, name in enumerate(HOSTS)])

    def ours(self, ranks, backend, size, path="user", *more, transport="ucx"):
        rows = pathlib.Path(self.folder.name) / "rows.json"
        rows.unlink(missing_ok=True)
        self.job(ranks, [self.options.bin + "/ddp-bench", "all_reduce", "--backend", backend,
                         "--min-bytes", str(size), "--max-bytes", str(size), "--path", path,
                         "--budget", "1", "--json", str(rows), *more],
                 [f"DDP_HOST_TRANSPORT={transport}"])
        row = json.loads(rows.read_text().splitlines()[-1])
        if row["wrong"]:
            raise SystemExit(f"hosts.sh: {row['wrong']} wrong elements")
        return row["time_us"]

    def gloos_own(self, ranks, size):
        meeting = tempfile.mkdtemp(dir=self.folder.name)
        out = self.job(ranks, [self.options.drivers + "/gloo_bench", "all_reduce", "--bytes",
                               str(size), "--budget", "1"], [f"DDP_BENCH_MEETING={meeting}"])
        return json.loads(out[out.index("{"):].splitlines()[0])["time_us"]

    def bare(self, ranks, size):
        rounds = max(10, min(2000, 256 * MIB // max(size, 1)))
        out = self.on_both([[self.options.drivers + "/duplex", str(index), ADDRESSES[0],
                             str(PORT + 10), str(ranks), str(size), str(rounds)]
                            for index in range(2)])
        return float(out)

    def within_hosts(self, size):
        """Both hosts' ranks among themselves, at the same time: what shares the cores with the cable."""
        rows = [pathlib.Path(self.folder.name) / f"within{index}.json" for index in range(2)]
        self.on_both([[self.options.bin + "/ddp-launch", f"--nproc-per-node={RANKS}",
                       "--status=off", self.options.bin + "/ddp-bench", "all_reduce", "--min-bytes",
                       str(size), "--max-bytes", str(size), "--budget", "1", "--json", str(row)]
                      for row in rows])
        return max(json.loads(row.read_text().splitlines()[-1])["time_us"] for row in rows)

    def bytes_a_call(self, backend, size):
        """On the cable, from the first host: of runs that differ in calls alone."""
        counts = []
        for calls in (3, 23):
            before = sent_bytes()
            self.ours(RANKS, backend, size, "user", "--iters", str(calls), "--no-check")
            counts.append(sent_bytes() - before)
        return (counts[1] - counts[0]) / 20


def main():
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--drivers", "--docs"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    make_hosts()
    bench = Bench(options)
    contestants = {
        "ours": lambda size: bench.ours(RANKS, "automatic", size),
        "shared": lambda size: bench.ours(RANKS, "automatic", size, "shared"),
        "gloo": lambda size: bench.ours(RANKS, "gloo", size, transport="gloo"),
        "over Gloo": lambda size: bench.ours(RANKS, "automatic", size, transport="gloo"),
        "bare": lambda size: bench.bare(RANKS, size),
        "within": bench.within_hosts,
        "single": lambda size: bench.ours(1, "automatic", size),
        "single over Gloo": lambda size: bench.ours(1, "automatic", size, transport="gloo"),
        "single own": lambda size: bench.gloos_own(1, size),
        "single bare": lambda size: bench.bare(1, size),
    }
    times = {(name, size): [] for name in contestants for size in SIZES}
    for number_of_round in range(options.rounds):
        for size in SIZES:
            for name, measure in contestants.items():
                times[name, size].append(measure(size))
        print(f"hosts.sh: round {number_of_round + 1} of {options.rounds} is done", flush=True)
    wire = {size: bench.bytes_a_call("automatic", size) for size in LARGE}
    limit_cable("1gbit")
    on_line = bench.ours(1, "automatic", 64 * MIB)
    free_cable()
    write(options, {key: statistics.median(values) for key, values in times.items()}, wire, on_line)


def write(options, us, wire, on_line):
    def ratios(over, under, sizes):
        return {name_of(size): us[over, size] / us[under, size] for size in sizes}

    # A byte of TCP's payload takes 1,514 of 1,448 bytes of the frame; the cable is full both ways.
    line_us = 64 * MIB * 8 * 1514 / 1448 / 1e9 * 1e6
    measures = [
        judge(f"2 hosts x {RANKS} ranks: backend gloo / ours", ratios("gloo", "ours", LARGE), at_least=3),
        judge(f"2 hosts x {RANKS} ranks: bytes on the cable / the least",
              {name_of(size): count / size for size, count in wire.items()}, at_most=1.1),
        judge(f"2 hosts x {RANKS} ranks: bare sockets / ours", ratios("bare", "ours", LARGE), at_least=0.9),
        judge(f"2 hosts x {RANKS} ranks: bare sockets and what is within hosts / ours",
              {name_of(size): (us["bare", size] + us["within", size]) / us["ours", size]
               for size in LARGE}, at_least=0.9),
        judge("2 hosts x 1 rank: Gloo's own all_reduce / ours",
              ratios("single own", "single", (64 * MIB,)), at_least=1.5),
        judge("2 hosts x 1 rank: ours / a bare ping-pong", ratios("single", "single bare", (4,)), at_most=2),
        judge("2 hosts x 1 rank, 1 Gbit/s: the line / ours", {"64 MiB": line_us / on_line}, at_least=0.95),
    ]
    facts = host.host_facts()
    lines = ["## all_reduce between two hosts", "",
             f"Written by `tools/bench/hosts.sh --rounds {options.rounds}` on {facts['date']}; nothing "
             "here is written by hand. Medians of the rounds.", "",
             f"- Host: {host.describe_host(facts)}",
             "- The two hosts are network namespaces of it, joined by a virtual cable: all ranks of "
             "both share its cores, and what crosses the cable costs them time, too.",
             "- *ours*: what `automatic` takes, `hierarchical` on 4 ranks a host and `gloo` on 1. *user*: "
             "any memory of the caller's. *shared*: memory of `group.allocate()`. UCX moves the messages; *over Gloo*: Gloo does.",
             "- *backend gloo*: every rank connected to every other, by Gloo.",
             "- *bare sockets*: processes that exchange, add and give back the same bytes, over a "
             "connection each, and do nothing within their hosts (tools/bench/hosts/duplex.cpp).",
             "- *within*: the all_reduce of each host's ranks alone, both hosts at once.", "",
             "### Measures", "", *reporting.measures_table(measures), "",
             f"### 2 hosts x {RANKS} ranks, float32 sum", "",
             *table(["bytes", "user us", "shared us", "over Gloo us", "backend gloo us", "bare sockets us", "within us",
                     "gloo / user"],
                    [[name_of(size), *(number(us[name, size]) for name in
                                       ("ours", "shared", "over Gloo", "gloo", "bare", "within")),
                      factor(us["gloo", size] / us["ours", size])] for size in SIZES]), "",
             "### 2 hosts x 1 rank, float32 sum", "",
             *table(["bytes", "ours us", "over Gloo us", "Gloo's own us", "bare sockets us", "Gloo's own / ours"],
                    [[name_of(size), *(number(us[name, size]) for name in
                                       ("single", "single over Gloo", "single own", "single bare")),
                      factor(us["single own", size] / us["single", size])] for size in SIZES])]
    reporting.write_section(options.docs + "/benchmarks.md", "hosts", lines, facts["maker"])
    reporting.print_measures(measures)


main()
