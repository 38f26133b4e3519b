#!/usr/bin/env python3
"""The time of 02_all_reduce beside a flood of its job's port, of another job's port, and of none, in
turns; called by flood.sh."""
import argparse
import os
import subprocess
import sys
import tempfile
from statistics import median

from host import describe_host, host_facts

AT_MOST = 1.1
SECONDS = 20  # after which a flood and a job end by themselves

# Rank 0 is timed; both wait until the flood is there.
WORKER = ('until [ -e "$GATE" ]; do sleep 0.01; done; '
          'if [ "$RANK" = 0 ]; then exec "$TIMER" 10 "$PROGRAM"; else exec "$PROGRAM" >/dev/null; fi')


def absolute(*parts):
    return os.path.abspath(os.path.join(*parts))


class Job:
    """Two ranks that wait at a gate."""

    def __init__(self, args, folder):
        self.gate = os.path.join(folder, "gate")
        environment = {**os.environ, "GATE": self.gate, "OMP_NUM_THREADS": "1",
                       "TIMER": absolute(args.drivers, "timer"),
                       "PROGRAM": absolute(args.bin, "examples/02_all_reduce")}
        script = f'[ "$RANK" = 1 ] || echo "port $MASTER_PORT"; {WORKER}'
        self.process = subprocess.Popen(
            [absolute(args.bin, "ddp-launch"), "--nproc-per-node=2", "sh", "-c", script],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().split()[-1])

    def run(self):
        """Microseconds of rank 0's 02_all_reduce."""
        with open(self.gate, "w"):
            pass
        out, _ = self.process.communicate(timeout=SECONDS)
        if self.process.returncode != 0:
            raise RuntimeError(f"the job ended with {self.process.returncode}")
        return float(out.split()[-1])

    def end(self):
        self.process.terminate()
        self.process.communicate()


def start_flood(args, port):
    words = [absolute(args.drivers, "flood"), str(port), str(SECONDS), str(args.rate)]
    if args.user != os.geteuid():
        user = str(args.user)
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
    flood = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    flood.stdout.readline()  # it has begun
    return flood


def measure(args, where):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other_folder:
        job, other = Job(args, folder), Job(args, other_folder)
        flood = None
        try:
            if where != "none":
                flood = start_flood(args, job.port if where == "own" else other.port)
            return job.run()
        finally:
            if flood:
                flood.kill()
                flood.communicate()
            other.end()
            if job.process.poll() is None:
                job.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--drivers", required=True)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--user", type=int, default=65534)
    args = parser.parse_args()
    times = {"own": [], "other": [], "none": []}
    order = list(times)
    for number in range(args.rounds):
        turn = number % len(order)
        for where in order[turn:] + order[:turn]:
            times[where].append(measure(args, where))
    print(f"{describe_host(host_facts())}; {args.rounds} rounds")
    for where, words in (("own", "a flood of its own port"), ("other", "a flood of another port"),
                         ("none", "no flood")):
        print(f"02_all_reduce beside {words}: {median(times[where]) / 1000:.2f} ms")
    ratio = median(times["own"]) / median(times["other"])
    met = ratio <= AT_MOST
    print(f"ratio {ratio:.3f}, at most {AT_MOST}: {'met' if met else 'missed'}")
    sys.exit(0 if met else 1)


main()
