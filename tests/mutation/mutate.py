"""A run of mutation testing; tests/mutate.sh tells what it does and calls it."""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build import Copy, Tree
from mutants import draw, read_known
from results import KILLED, NO_EFFECT, REFUSED, SURVIVED, Results
from sandbox import Sandbox, why_not
from tests import Tests

ENOUGH = 0.85
SKIPPED = 77
COUNTED = (KILLED, SURVIVED, NO_EFFECT)


def parse_rooms(text):
    """{room: (folder, [(program, filter)])}"""
    rooms = {}
    for line in text.split("\n"):
        if line.strip():
            room, folder, *tests = line.split()
            rooms[room] = (folder, [(name, chosen) for name, _, chosen in (test.partition(":") for test in tests)])
    return rooms


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/mutate.sh")
    parser.add_argument("root", type=Path)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--room", default="")
    parser.add_argument("--build")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--through", default="")
    parser.add_argument("--configure", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


class Draw:
    """Of one room: its mutants in their order, until enough of them count. One mutant counts a line. Which are drawn does not
    depend on how many are tested at once."""

    def __init__(self, room, mutants, wanted):
        self.room = room
        self.mutants = mutants
        self.wanted = wanted
        self.lines = set()
        self.under_test = set()  # their lines

    def lacks(self):
        """So many more are drawn in any case, whatever becomes of those under test."""
        while self.mutants and self.mutants[0].place() in self.lines:
            self.mutants.popleft()
        if not self.mutants or self.mutants[0].place() in self.under_test:
            return 0
        return self.wanted - len(self.under_test)

    def is_done(self):
        return self.wanted == 0 or not (self.mutants or self.under_test)

    def next(self):
        mutant = self.mutants.popleft()
        self.under_test.add(mutant.place())
        return mutant

    def enter(self, mutant, verdict):
        self.under_test.remove(mutant.place())
        if verdict in COUNTED:
            self.lines.add(mutant.place())
            self.wanted -= 1


class Run:
    def __init__(self, options, rooms):
        self.options = options
        self.rooms = rooms
        self.end = time.monotonic() + options.minutes * 60 if options.minutes else None
        self.tree = Tree(options.root, options.dir, options.through.split(), options.configure.split())
        self.copies = [Copy(self.tree, options.dir / str(number)) for number in range(options.jobs)]
        self.tests = Tests(options.root, options.dir / "times.json")
        self.results = Results(options.dir / f"results-{options.seed}.tsv")
        self.no_effect = read_known(options.root / "tests/mutation/no_effect.txt")
        self.survivors = read_known(options.root / "tests/mutation/survivors.txt")
        self.change = threading.Condition()
        self.draws = []
        self.unexplained = []
        self.stopped = False

    def is_over(self):
        return self.stopped or (self.end is not None and time.monotonic() > self.end)

    def prepare(self):
        self.tree.prepare([name for _, tests in self.rooms.values() for name, _ in tests])
        share, more = divmod(self.options.count, len(self.rooms))
        for number, (room, (folder, _)) in enumerate(self.rooms.items()):
            order = random.Random(f"{self.options.seed} {room}")
            # All at once, before there are threads: universalmutator writes to stdout.
            drawn = deque(draw(self.options.root, folder, self.tree.may_be_mutated, order))
            self.draws.append(Draw(room, drawn, share + (number < more)))

    def measure(self):
        self.copies[0].make()
        sandbox = Sandbox(self.copies[0])
        for program, chosen in dict.fromkeys(test for _, tests in self.rooms.values() for test in tests):
            if program in self.tree.targets:
                self.tests.measure(sandbox, self.tree.program(program), chosen)

    # Workers ------------------------------------------------------------------------------------

    def run_all(self):
        self.measure()
        with ThreadPoolExecutor(len(self.copies)) as pool:
            for done in [pool.submit(self.work, copy) for copy in self.copies]:
                done.result()

    def work(self, copy):
        try:
            copy.make()
            sandbox = Sandbox(copy)
            while (taken := self.take()) is not None:
                one, mutant = taken
                verdict = self.verdict_of(copy, sandbox, one, mutant)
                with self.change:
                    one.enter(mutant, verdict)
                    self.change.notify_all()
        except BaseException:
            self.stopped = True
            raise

    def take(self):
        """A draw and its next mutant, of the draw that lacks most."""
        with self.change:
            while not self.is_over() and not all(one.is_done() for one in self.draws):
                one = max(self.draws, key=Draw.lacks)
                if one.lacks() > 0:
                    return one, one.next()
                self.change.wait(1)
            return None

    def verdict_of(self, copy, sandbox, one, mutant):
        known = self.results.verdict(mutant)
        if known == SURVIVED and (self.options.again or mutant.key() in self.no_effect):
            known = None
        if known is not None:
            with self.change:
                self.results.count(one.room, known)
                self.note(mutant, known)
            return known
        start = time.monotonic()
        verdict, by = self.test(copy, sandbox, one.room, mutant)
        seconds = time.monotonic() - start
        with self.change:
            self.results.add(one.room, mutant, verdict, seconds, by)
            self.note(mutant, verdict)
            if verdict in COUNTED:
                print(f"{verdict:9} {seconds:4.0f} s  {mutant}" + (f"\n{'':19}by {by}" if by else ""), flush=True)
        return verdict

    def note(self, mutant, verdict):
        if verdict == SURVIVED and mutant.key() not in self.survivors:
            self.unexplained.append(mutant)

    def test(self, copy, sandbox, room, mutant):
        """Its verdict, and the test that killed it."""
        if mutant.key() in self.no_effect:
            return NO_EFFECT, ""
        with copy.mutated(mutant):
            reason = copy.try_compile(mutant)
            if reason:
                return reason, ""
            for program, tests in self.tests.parts(self.rooms[room][1], mutant.file):
                if not copy.make_target(program):
                    return REFUSED, ""
                failed = self.tests.run(sandbox, self.tree.program(program), tests)
                if failed:
                    return KILLED, f"{program}: {failed}"
        return SURVIVED, ""


def heed_signals():
    """As tests of signals need it: what nohup or a shell's & ignores would be ignored in all that they start."""
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(one) == signal.SIG_IGN:
            signal.signal(one, signal.SIG_DFL)


def main():
    heed_signals()
    options = parse_arguments()
    rooms = parse_rooms(os.environ.pop("DDP_MUTATION_ROOMS"))  # no test knows what to do with such a variable
    unknown = [room for room in options.room.split(",") if room and room not in rooms]
    if unknown:
        sys.exit(f"mutate: no room {', '.join(unknown)}; there are {', '.join(rooms)}")
    if options.room:
        rooms = {room: rooms[room] for room in options.room.split(",")}
    reason = why_not(options.dir)
    if reason:
        print(f"mutate: {reason}", file=sys.stderr)
        return SKIPPED
    run = Run(options, rooms)
    run.prepare()
    if options.list:
        for one in run.draws:
            for _, mutant in zip(range(one.wanted), one.mutants):
                print(f"{one.room:14} {mutant}")
        return 0
    run.run_all()
    ratio = run.results.print_table()
    for mutant in run.unexplained:
        print(f"mutate: survived, and tests/mutation/survivors.txt does not say why: {mutant}")
    if not all(one.is_done() for one in run.draws):
        print(f"mutate: {options.minutes:g} minutes are over; the same command goes on")
        return 0
    for one in run.draws:
        if one.wanted > 0:
            print(f"mutate: {one.room} has no more mutants")
    return 0 if ratio >= ENOUGH else 1


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except subprocess.CalledProcessError as error:
        print(f"mutate: {error}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.exit(code)
