"""A run of mutation testing; tests/mutate.sh tells what it does and calls it."""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from build import Build
from mutants import Mutant, draw, read_no_effect
from results import KILLED, NO_EFFECT, SURVIVED, Results
from sandbox import Sandbox

ENOUGH = 0.85
SKIPPED = 77


class Stopped(Exception):
    """The time given is over."""


def parse_rooms(text):
    """{room: (folder, [(program, filter)])}"""
    rooms = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        room, folder, *tests = line.split()
        rooms[room] = (folder, [tuple((test + ":").split(":", 1)) for test in tests])
        rooms[room] = (folder, [(name, rest.rstrip(":")) for name, rest in rooms[room][1]])
    return rooms


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/mutate.sh")
    parser.add_argument("root", type=Path)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", default="")
    parser.add_argument("--build")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--through", default="")
    parser.add_argument("--configure", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


class Run:
    def __init__(self, options, rooms):
        self.options = options
        self.rooms = rooms
        self.end = time.monotonic() + options.minutes * 60 if options.minutes else None
        through = options.through.split()
        self.build = Build(options.root, options.dir, through, options.configure.split())
        self.sandbox = Sandbox(options.dir, through)
        self.results = Results(options.dir / f"results-{options.seed}.tsv")
        self.no_effect = read_no_effect(options.root / "tests/mutation/no_effect.txt")

    def check_time(self):
        if self.end is not None and time.monotonic() > self.end:
            raise Stopped()

    def streams(self):
        """For each room its mutants, in the order in which they are drawn."""
        for room, (folder, _) in self.rooms.items():
            order = random.Random(f"{self.options.seed} {room}")
            yield room, draw(self.options.root, folder, self.build.may_be_mutated, order)

    def test(self, room, mutant):
        """Its verdict, and the test that killed it."""
        if mutant.key() in self.no_effect:
            return NO_EFFECT, ""
        with self.build.mutated(mutant):
            why_not = self.build.try_compile(mutant)
            if why_not:
                return why_not, ""
            for program, chosen in self.rooms[room][1]:
                if not self.build.has(program):
                    continue
                self.check_time()
                if not self.build.link(program):
                    return "refused", ""
                failed = self.sandbox.run(self.build.program(program), chosen)
                if failed:
                    return KILLED, f"{program}: {failed}"
        return SURVIVED, ""

    def measure(self, room):
        """How long each test program of a room takes without a mutant; it must pass."""
        for program, chosen in self.rooms[room][1]:
            if not self.build.has(program) or self.sandbox.knows(program, chosen):
                continue
            self.check_time()
            if not self.build.link(program):
                sys.exit(f"mutate: {program} cannot be built; see {self.build.log}")
            failed = self.sandbox.measure(self.build.program(program), chosen)
            if failed:
                sys.exit(f"mutate: {program} fails without a mutant: {failed}; see {self.sandbox.log}")
            print(f"{program} {chosen}: {self.sandbox.seconds(program, chosen):.0f} s without a mutant"
                  + "".join(f"\n  left out, as it fails in the sandbox: {test}"
                            for test in self.sandbox.left_out(program, chosen)), flush=True)

    def run_all(self):
        wanted = {room: self.options.count // len(self.rooms) for room in self.rooms}
        for room in list(wanted)[: self.options.count % len(self.rooms)]:
            wanted[room] += 1
        streams = dict(self.streams())
        lines = {room: set() for room in self.rooms}  # one mutant that counts a line
        while any(wanted.values()):
            for room in self.rooms:
                if wanted[room] == 0:
                    continue
                mutant = next(streams[room], None)
                while mutant is not None and mutant.place() in lines[room]:
                    mutant = next(streams[room], None)
                if mutant is None:
                    print(f"{room}: no more mutants")
                    wanted[room] = 0
                    continue
                verdict = self.verdict_of(room, mutant)
                if verdict in (KILLED, SURVIVED, NO_EFFECT):
                    lines[room].add(mutant.place())
                    wanted[room] -= 1

    def verdict_of(self, room, mutant: Mutant):
        known = self.results.verdict(mutant)
        if known == SURVIVED and (self.options.again or mutant.key() in self.no_effect):
            known = None
        if known is not None:
            self.results.count(room, known)
            return known
        self.check_time()
        self.measure(room)
        start = time.monotonic()
        verdict, by = self.test(room, mutant)
        seconds = time.monotonic() - start
        self.results.add(room, mutant, verdict, seconds, by)
        if verdict in (KILLED, SURVIVED, NO_EFFECT):
            print(f"{verdict:9} {seconds:4.0f} s  {mutant}" + (f"\n{'':19}by {by}" if by else ""),
                  flush=True)
        return verdict


def main():
    options = parse_arguments()
    rooms = parse_rooms(os.environ["DDP_MUTATION_ROOMS"])
    unknown = [room for room in options.room.split(",") if room and room not in rooms]
    if unknown:
        sys.exit(f"mutate: no room {', '.join(unknown)}; there are {', '.join(rooms)}")
    if options.room:
        rooms = {room: rooms[room] for room in options.room.split(",")}
    run = Run(options, rooms)
    if options.list:
        for room, stream in run.streams():
            for _, mutant in zip(range(options.count // len(rooms)), stream):
                print(f"{room:14} {mutant}")
        return 0
    why_not = run.sandbox.why_not()
    if why_not:
        print(f"mutate: {why_not}", file=sys.stderr)
        return SKIPPED
    try:
        run.build.prepare()
        run.run_all()
    except Stopped:
        print(f"mutate: {options.minutes:g} minutes are over; the same command goes on")
        run.results.print_table()
        return 0
    ratio = run.results.print_table()
    return 0 if ratio >= ENOUGH else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        sys.exit(f"mutate: {error}")
