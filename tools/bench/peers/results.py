"""The rows of run.py, and the medians and ratios over its rounds."""
import collections
import json
from statistics import median

DEBIAN = ["Open MPI", "Open MPI, malloc", "Open MPI, vader", "MPICH", "MPICH, malloc"]
# Of which the best of a round is the best peer.
PEERS = DEBIAN + ["Open MPI 5", "MPICH 5", "Intel MPI", "Intel MPI, waits", "oneCCL"]


def median_row(rows):
    """Where runs were left out, the lower one of two in the middle."""
    return sorted(rows, key=lambda row: row["time_us"])[(len(rows) - 1) // 2]


class Results:
    def __init__(self, path):
        self.facts = {}
        self.problems = []
        self.wrong = 0
        self.rows = 0
        self.far = 0  # rows measured while the cores were far
        # (collective, ranks, dtype, bytes) -> contestant -> round -> the row of each process
        found = collections.defaultdict(
            lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
        with open(path) as file:
            for line in file:
                row = json.loads(line)
                if "facts" in row:
                    self.facts = row
                elif "problem" in row:
                    self.problems.append(row)
                    self.wrong += row.get("wrong", 0)
                else:
                    self.wrong += row["wrong"] or 0
                    self.rows += 1
                    self.far += not row["near"]
                    key = (row["collective"], row["ranks"], row["dtype"], row["bytes"])
                    found[key][row["contestant"]][row["round"]].append(row)
        # Likewise, of which the median row stands for the round.
        self.cells = {key: {name: {number: median_row(rows) for number, rows in rounds.items()}
                            for name, rounds in names.items()} for key, names in found.items()}

    def sizes(self, collective, ranks, dtype="float32"):
        return sorted(key[3] for key in self.cells if key[:3] == (collective, ranks, dtype))

    def times(self, key, contestant):
        """Round -> microseconds; `contestant` may be a list, of which the best of a round counts."""
        names = contestant if isinstance(contestant, list) else [contestant]
        best = {}
        for name in names:
            for number, row in self.cells.get(key, {}).get(name, {}).items():
                best[number] = min(row["time_us"], best.get(number, row["time_us"]))
        return best

    def time(self, key, contestant):
        times = self.times(key, contestant)
        return median(times.values()) if times else None

    def ratio(self, key, peer, ours):
        """How many times as long the peer takes: the median of the rounds' ratios."""
        a, b = self.times(key, peer), self.times(key, ours)
        ratios = [a[number] / b[number] for number in a.keys() & b.keys()]
        return median(ratios) if ratios else None

    def over_floor(self, key, ours="ddp shared"):
        """Our time over the floor that the same run measured."""
        rows = self.cells.get(key, {}).get("ddp shared", {})
        times = self.times(key, ours)
        ratios = [times[number] / row["floor_us"] for number, row in rows.items()
                  if "floor_us" in row and number in times]
        return median(ratios) if ratios else None

    def at_best_over_floor(self, key, ours="ddp shared"):
        """What over_floor() would be for somebody at the bound, and our time over that."""
        rows, times = self.cells.get(key, {}).get(ours, {}), self.times(key, ours)
        bounds = self.bounds(key, ours)
        best = [bounds[number] / rows[number]["floor_us"] for number in bounds
                if rows[number].get("floor_us")]
        over = [times[number] / bounds[number] for number in bounds]
        return median(best) if best else None, median(over) if over else None

    def floor(self, key):
        rows = self.cells.get(key, {}).get("ddp shared", {}).values()
        floors = [row["floor_us"] for row in rows if "floor_us" in row]
        return median(floors) if floors else None

    def bounds(self, key, ours):
        """Round -> the least time of such a row, as its own run measured it: of its traffic, or of
        the bare loop of its path, whichever is more. What took longer than we did bounds nobody."""
        rows = self.cells.get(key, {}).get(ours, {})
        bounds = {number: max((row[name] for name in ("floor_us", "bare_us")
                               if row.get(name, 0) <= row["time_us"] and name in row), default=0)
                  for number, row in rows.items()}
        return {number: bound for number, bound in bounds.items() if bound > 0}

    def at_floor(self, key, peer, ours):
        """What ratio() would be for somebody at the bound, and our time over it."""
        bounds, a, b = self.bounds(key, ours), self.times(key, peer), self.times(key, ours)
        best = [a[number] / bounds[number] for number in a.keys() & bounds.keys()]
        over = [b[number] / bounds[number] for number in b.keys() & bounds.keys()]
        return median(best) if best else None, median(over) if over else None

    def element_rate(self, dtype, size, ours):
        """Elements a second, over those of float32."""
        half = self.times(("all_reduce", 2, dtype, size), ours)
        plain = self.times(("all_reduce", 2, "float32", size), ours)
        # A half type has twice the elements in as many bytes.
        rates = [2 * plain[number] / half[number] for number in half.keys() & plain.keys()]
        return median(rates) if rates else None
