"""What start.sh and peers.sh say with --against: the medians of this build and of an older one, their
ratio, and whether that lies inside the spread of the old one against itself."""
import os
import shutil
import sys
from dataclasses import dataclass, field
from statistics import median

from host import describe_host, host_facts


def quantile(values, part):
    """Of sorted values, between two of them where it falls there."""
    position = part * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


@dataclass
class Case:
    name: str
    times: dict = field(default_factory=lambda: {"new": [], "old": [], "old again": []})

    def add(self, times):
        """A round counts where all took part: its ratios are of the same moment."""
        if len(times) == len(self.times):
            for label, microseconds in times.items():
                self.times[label].append(microseconds)

    def rounds(self):
        return len(self.times["new"])

    def median_us(self, label):
        return median(self.times[label])

    def ratio(self, over, under):
        """The median of the rounds' ratios."""
        return median(a / b for a, b in zip(self.times[over], self.times[under]))

    def spread(self):
        """Of old against old: nine of ten rounds lie within. Which of the two is called `again` is
        chance, so that each round counts both ways."""
        ratios = [a / b for a, b in zip(self.times["old again"], self.times["old"])]
        both = sorted(ratios + [1 / ratio for ratio in ratios])
        return quantile(both, 0.05), quantile(both, 0.95)

    def verdict(self):
        low, high = self.spread()
        ratio = self.ratio("new", "old")
        if ratio > high:
            return "outside: slower"
        return "outside: faster" if ratio < low else "inside"


def print_cases(cases):
    """Returns how many are slower than the spread allows, or were not measured."""
    width = max(len(case.name) for case in cases)
    print(f"{'case':{width}}      new us      old us    again us   new/old   again/old   "
          "spread of old/old    verdict")
    bad = 0
    for case in cases:
        if case.rounds() == 0:
            print(f"{case.name:{width}}   not measured")
            bad += 1
            continue
        low, high = case.spread()
        verdict = case.verdict()
        bad += verdict == "outside: slower"
        print(f"{case.name:{width}} {case.median_us('new'):11.2f} "
              f"{case.median_us('old'):11.2f} {case.median_us('old again'):11.2f} "
              f"{case.ratio('new', 'old'):9.3f} {case.ratio('old again', 'old'):11.3f}   "
              f"{low:.3f} .. {high:.3f}       {verdict}")
    return bad


def copy_builds(new, old, programs, folder):
    """The programs of both builds, in folder/new and folder/old. Copies, made alike: the same program starts
    by some percent slower where its linker wrote it in small pieces."""
    copies = {}
    for side, build in (("new", new), ("old", old)):
        copies[side] = os.path.join(folder, side)
        os.makedirs(copies[side], exist_ok=True)
        for program in programs:
            shutil.copy(os.path.join(build, "bin", program), copies[side])
    return copies


def finish(cases, rounds, failed):
    """Ends the process: 1 where a case is slower, or not all was measured."""
    if not cases:
        sys.exit("nothing was measured")
    print(f"{describe_host(host_facts())}; {rounds}")
    outside = print_cases(cases)
    if failed:
        print(f"{failed} runs did not end well")
    sys.exit(1 if outside or failed else 0)
