"""The verdicts of a run, a line each in a file, so that a run can go on."""

from mutants import squeeze

KILLED, SURVIVED, NO_EFFECT = "killed", "survived", "no effect"
REFUSED, EQUIVALENT = "refused", "equivalent"  # by the compiler; to the machine: both are drawn anew


class Results:
    def __init__(self, file):
        self.file = file
        self.known = {}
        self.counts = {}
        for line in file.read_text().splitlines() if file.exists() else []:
            verdict, _, _, name, _, original, mutated, _ = line.split("\t")
            self.known[(name, original, mutated)] = verdict

    def verdict(self, mutant):
        return self.known.get(mutant.key())

    def add(self, room, mutant, verdict, seconds, by):
        file, original, mutated = mutant.key()
        fields = [verdict, f"{seconds:.0f}", room, file, str(mutant.line), original, mutated, squeeze(by)]
        with open(self.file, "a", encoding="utf-8") as out:
            out.write("\t".join(fields) + "\n")
        self.known[mutant.key()] = verdict
        self.count(room, verdict)

    def count(self, room, verdict):
        self.counts.setdefault(room, {}).setdefault(verdict, 0)
        self.counts[room][verdict] += 1

    def print_table(self):
        """The share of the mutants with an effect that was killed."""
        columns = [KILLED, SURVIVED, NO_EFFECT, EQUIVALENT, REFUSED]
        print(f"{'':14}" + "".join(f"{name:>12}" for name in columns) + f"{'share':>8}")
        total = dict.fromkeys(columns, 0)
        for room, counts in self.counts.items():
            self.print_row(room, [counts.get(name, 0) for name in columns])
            for name in columns:
                total[name] += counts.get(name, 0)
        self.print_row("all", [total[name] for name in columns])
        with_effect = total[KILLED] + total[SURVIVED]
        return total[KILLED] / with_effect if with_effect else 1.0

    @staticmethod
    def print_row(name, numbers):
        killed, survived = numbers[:2]
        share = f"{killed / (killed + survived):.0%}" if killed + survived else "-"
        print(f"{name:14}" + "".join(f"{number:12}" for number in numbers) + f"{share:>8}")
