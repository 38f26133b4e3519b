#!/usr/bin/env python3
"""Runs ddp-bench and the peers' drivers alternately, each in fresh processes, and writes one JSON
object a row, with its round and contestant. A run that exceeds its limit is recorded as such, and
nothing of it is left; called by peers.sh."""
import argparse
import collections
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import plan
from host import MARK, host_facts, kill_all, output_of, package_version


@contextlib.contextmanager
def quiet(lock):
    """Holds the file's lock; waiting for it does not count against a run's limit."""
    if not lock:
        yield
        return
    with open(lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_limited(command, environment, limit_s):
    """Standard output, or None and why. Leaves no process behind."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            env={**os.environ, **environment, MARK: mark})
        try:
            code = process.wait(limit_s)
            problem = f"exit code {code}" if code != 0 else None
        except subprocess.TimeoutExpired:
            problem = "time-out"
        finally:  # also when we are interrupted
            kill_all(mark)
            process.wait()
        out.seek(0)
        err.seek(0)
        if problem and problem != "time-out":
            problem += ": " + " ".join(err.read()[-300:].split())
        return out.read(), problem


class Placement:
    """Whether this host's cores are as near each other as they get (placement.cpp). The cores of a
    virtual machine move while it runs."""

    def __init__(self, program):
        self.program = program
        self.least = min(self.measure_ns() for _ in range(20) if not time.sleep(0.1))

    def measure_ns(self):
        return float(subprocess.run([self.program], check=True, capture_output=True,
                                    timeout=10).stdout)

    def is_near(self):
        ns = self.measure_ns()
        self.least = min(self.least, ns)
        return ns <= plan.NEAR * self.least


def run_near(args, tools, group, label, cores, placement):
    """run_one() while the cores are near, or its last try; whether they were, and the tries."""
    tries = 1 if args.quick else plan.TRIES
    for number in range(1, tries + 1):
        near = placement.is_near()
        if not near and number < tries:
            time.sleep(0.2)
            continue
        rows, problem = run_one(args, tools, group, label, cores)
        near = near and placement.is_near()
        if problem or near:
            break
    return rows, problem, near, number


def turns_of(group, number, quick):
    """The contestants by turns, each as often as it runs; another one begins each round."""
    turn = number % len(group.contestants)
    turns = group.contestants[turn:] + group.contestants[:turn]
    return turns * (1 if quick else group.processes())


def run_one(args, tools, group, label, cores):
    """The rows that one contestant measures for one group, and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="ddp-peers-") as folder:
        json_file = os.path.join(folder, "rows.json")
        entry = plan.contestant(label, tools, group, cores)
        command = entry.command + plan.driver_options(label, group, json_file)
        environment = {**entry.environment, "DDP_BENCH_MEETING": folder}
        with quiet(args.lock):
            out, problem = run_limited(command, environment, args.limit)
        if entry.ours:
            out = open(json_file).read() if os.path.exists(json_file) else ""
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    wanted = len(group.sizes)
    if not problem and len(rows) != wanted:
        problem = f"{len(rows)} rows instead of {wanted}"
    return rows, problem


def wheels_of(args):
    """The peers of the package index that are there."""
    return [name for name, (folder, _) in plan.WHEELS.items()
            if args.peers and os.path.exists(os.path.join(args.peers, folder, "bin", "python"))]


def wheel_version(root, name):
    packages = plan.WHEELS[name][1]
    code = f"from importlib.metadata import version; print(*map(version, {packages}))"
    versions = output_of([os.path.join(root, "bin", "python"), "-c", code]).split()
    if not versions:
        return "?"
    return versions[0] + (f" on Intel MPI {versions[1]}" if len(versions) > 1 else "")


def kept_rows(path, wanted):
    """The lines of the last run that --only does not measure again."""
    kept = []
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            if "facts" in row:
                continue
            sizes = row["sizes"] if "problem" in row else [row["bytes"]]
            key = (row["collective"], row["ranks"], row.get("dtype", "float32"))
            again = any(key == (group.collective, group.ranks, group.dtype) and
                        set(sizes) <= set(group.sizes) for group in wanted)
            if not again:
                kept.append(line)
    return kept


def earlier_runs(path):
    """The commands and dates of the runs whose rows --only keeps."""
    with open(path) as file:
        before = json.loads(file.readline())
    return [*before.get("earlier", []), f"`{before['command']}` on {before['date']}"]


def facts(args, tools):
    versions = {"Open MPI": package_version("libopenmpi-dev"),
                "MPICH": package_version("libmpich-dev"), "Gloo": package_version("libgloo-dev")}
    versions |= {name: wheel_version(os.path.join(args.peers, plan.WHEELS[name][0]), name)
                 for name in wheels_of(args)}
    if args.torch:
        versions["PyTorch"] = package_version("python3-torch")
    return {
        "facts": True, **host_facts(), "command": args.command, "rounds": args.rounds,
        "limit_s": args.limit,
        "ddp": output_of([tools["ddp-bench"], "--version"]).split()[-1], "versions": versions,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="where ddp-launch and ddp-bench are")
    parser.add_argument("--drivers", required=True, help="where the peers' drivers are")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60, help="seconds of one run")
    parser.add_argument("--lock", default="", help="a file to lock during each run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", default="", help="the python3 that has PyTorch")
    parser.add_argument("--peers", default="", help="where peers of the package index are")
    parser.add_argument("--only", default="", help="a pattern: groups to measure again")
    parser.add_argument("--command", default="tools/bench/peers.sh")
    args = parser.parse_args()
    tools = {name: os.path.join(args.bin, name) for name in ("ddp-launch", "ddp-bench")}
    tools |= {name: os.path.join(args.drivers, name + "_bench")
              for name in ("openmpi", "mpich", "gloo")}
    here = os.path.dirname(os.path.abspath(__file__))
    tools |= {"python": args.torch, "torch": os.path.join(here, "torch_bench.py")}
    for name in ("mpirun.openmpi", "mpiexec.hydra"):
        if not shutil.which(name):
            sys.exit(f"peers: {name} is missing; tools/install-deps.sh --interop installs it")
    for name in wheels_of(args):
        folder = plan.WHEELS[name][0]
        tools |= {name: os.path.abspath(os.path.join(args.peers, folder)),
                  name + " driver": os.path.join(args.drivers, folder + "_bench")}

    def groups_of(number):
        groups = plan.make_groups(args.quick, bool(args.torch), number == 0, wheels_of(args))
        return [group for group in groups if re.search(args.only, group.name())]

    if not groups_of(0):
        names = ", ".join(group.name() for group in plan.make_groups(args.quick, False, False))
        sys.exit(f"peers: --only '{args.only}' matches none of {names}")
    if args.only and not os.path.exists(args.out):
        sys.exit(f"peers: --only needs the rows of an earlier run, {args.out}")
    kept = kept_rows(args.out, groups_of(0)) if args.only else []
    earlier = {"earlier": earlier_runs(args.out)} if args.only else {}
    cores = len(os.sched_getaffinity(0))
    problems = collections.Counter()
    tries = 0
    placement = Placement(os.path.join(args.drivers, "placement_bench"))
    begin = time.monotonic()
    with open(args.out, "w") as out:
        print(json.dumps(facts(args, tools) | earlier), file=out, flush=True)
        out.writelines(kept)
        for number in range(args.rounds):
            for group in groups_of(number):
                for label in turns_of(group, number, args.quick):
                    rows, problem, near, tried = run_near(args, tools, group, label, cores,
                                                          placement)
                    tries += tried - 1
                    for row in [] if problem else rows:
                        print(json.dumps(row | {"round": number, "contestant": label,
                                                "near": near}), file=out)
                    if problem:
                        problems[label, problem[:60]] += 1
                        print(json.dumps({"problem": problem, "round": number, "contestant": label,
                                          "collective": group.collective, "ranks": group.ranks,
                                          "sizes": group.sizes,
                                          "wrong": sum(row["wrong"] or 0 for row in rows)}),
                              file=out)
                    out.flush()
            print(f"peers: round {number + 1} of {args.rounds} after "
                  f"{time.monotonic() - begin:.0f} s, {tries} tries more for cores that were far",
                  file=sys.stderr, flush=True)
    for (label, problem), count in problems.items():
        print(f"peers: {label}: {count} x {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
