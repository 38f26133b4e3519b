"""Runs ddp-store-speed at the stores of one or two builds, interleaved, and prints what came out; of
two builds also whether the new one is inside the spread of old against old, as start.sh judges it."""
import argparse
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "start"))
from against_report import Case  # noqa: E402


def measure(launch, speed, clients, rounds):
    command = [launch, "--nproc-per-node=1", "--", speed, str(clients), str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    for word in done.stdout.split():  # the launcher may put the rank before it
        try:
            return float(word)
        except ValueError:
            continue
    raise SystemExit(f"no number from {' '.join(command)}: {done.stdout!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--against", default="")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--operations", type=int, required=True)
    options = parser.parse_args()
    speed = options.build + "/bin/ddp-store-speed"
    contestants = {"new": options.build}
    if options.against:
        # Old twice: how far two runs of the same program differ.
        contestants = {"old": options.against, "new": options.build, "old again": options.against}
    speeds = {name: [] for name in contestants}
    for number in range(options.rounds):
        names = list(contestants)
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            launch = contestants[name] + "/bin/ddp-launch"
            speeds[name].append(measure(launch, speed, options.clients, options.operations // 4))
    print(f"{options.clients} clients, {options.rounds} rounds; operations a second")
    for name, values in speeds.items():
        low, high = min(values), max(values)
        print(f"  {name:10} median {statistics.median(values):10,.0f}   from {low:10,.0f} to {high:10,.0f}")
    if not options.against:
        return 0
    case = Case("store", options.clients)
    for rates in zip(*speeds.values()):
        case.add({name: 1 / rate for name, rate in zip(speeds, rates)})
    low, high = case.spread()
    verdict = case.verdict()
    print(f"  time: new / old {case.ratio('new', 'old'):.3f}, spread of old / old {low:.3f} .. {high:.3f}: {verdict}")
    return verdict == "outside: slower"


sys.exit(main())
