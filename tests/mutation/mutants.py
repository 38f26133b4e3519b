"""What is mutated and how: universalmutator's mutants of a room's sources, in the order of a draw."""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from universalmutator import mutator

RULES = ["universal.rules", "c_like.rules", "cpp.rules"]
# Lines that say nothing about what the program does.
IGNORED = [
    r"^\s*#", r"^\s*//", r"^\s*(using|namespace|template|friend|class|struct|enum|public|private|case)\b",
    r"static_assert", r"^\s*[{}]*;?\s*$", r"\[\[nodiscard\]\]", r"= (delete|default);",
    # Texts, which tests look at in part: logs and messages.
    r"\blog_(debug|info|warn|error)\(", r'^\s*"', r"\bthrow \w*Error\(",
    # What ThreadSanitizer is for.
    r"\b(lock_guard|unique_lock|scoped_lock)\b",
]
# The formatter puts spaces around operators of two operands, and none around those of templates, pointers and arrows.
OF_TYPES = re.compile(r"[<>*&-]")
# Words that rules know; they also meet them as parts of names.
WORDS = {"min", "max", "begin", "end", "any_of", "all_of", "none_of", "min_element", "max_element", "while", "else"}


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int  # from 1
    original: str
    mutated: str
    nth: int = 1  # of the lines of this text in the file

    def place(self):
        return self.file, self.line

    def key(self):
        """As no_effect.txt and survivors.txt have it: without the line's number, which moves."""
        return self.file + (f" #{self.nth}" if self.nth > 1 else ""), squeeze(self.original), squeeze(self.mutated)

    def __str__(self):
        return f"{self.file}:{self.line}  {squeeze(self.original)}  ==>  {squeeze(self.mutated)}"


def squeeze(text):
    return " ".join(text.split())


def read_known(file):
    """Of blocks of four lines: file (and #2 for the second such line in it), original, mutated or (nothing), reason; a blank line
    between them."""
    keys = set()
    for block in re.split(r"\n\s*\n", file.read_text()) if file.exists() else []:
        lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
        if lines:
            keys.add((lines[0], squeeze(lines[1]), squeeze(lines[2]).replace("(nothing)", "")))
    return keys


def changed_part(original, mutated):
    """Where they begin to differ and how much of the original that is."""
    begin = 0
    while begin < min(len(original), len(mutated)) and original[begin] == mutated[begin]:
        begin += 1
    end = 0
    while end < min(len(original), len(mutated)) - begin and original[-1 - end] == mutated[-1 - end]:
        end += 1
    return begin, original[begin : len(original) - end]


def is_in_a_name(original, mutated):
    begin, part = changed_part(original, mutated)
    end = begin + len(part)
    while begin > 0 and re.match(r"\w", original[begin - 1]):
        begin -= 1
    while end < len(original) and re.match(r"\w", original[end]):
        end += 1
    word = original[begin:end]
    return re.fullmatch(r"[A-Za-z_]\w*", word) is not None and word not in WORDS


def is_hopeless(original, mutated):
    """What the compiler would refuse, or make nothing of."""
    added = mutated.count("\n") > 1  # "break" or "continue" after the line, which is seldom in a loop
    text = original.strip()
    deleted = mutated.strip().startswith("/*")
    declares = re.match(r"(return|const|auto|static|constexpr)\b|[\w:<>*&]+ [\w]+( =|;|\{|\()", text)
    begin, _ = changed_part(original, mutated)
    of_texts = '"' in original[max(0, begin - 3) : begin + 4]
    return added or of_texts or (deleted and (not text.endswith(";") or declares))


def does_something(file, original):
    """Headers are mostly declarations."""
    indent = len(original) - len(original.lstrip())
    if file.endswith(".cpp"):
        return indent >= 4
    return indent >= 8 or re.search(r"\{.*;.*\}", original) is not None


def is_of_types(original, mutated):
    begin, part = changed_part(original, mutated)
    if len(part) > 1 or not OF_TYPES.fullmatch(original[begin : begin + 1]):
        return False
    around = original[max(0, begin - 1) : begin + 2]
    return around != f" {original[begin]} "


def mutants_of(root, file):
    source = (root / file).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp(source, RULES, ignorePatterns=IGNORED, ignoreStringOnly=True)
    for line, mutated, *_ in found:
        original = source[line - 1]
        if squeeze(original) == squeeze(mutated) or not does_something(file, original):
            continue
        if any(test(original, mutated) for test in (is_of_types, is_in_a_name, is_hopeless)):
            continue
        same = [squeeze(one) for one in source[:line]].count(squeeze(original))
        yield Mutant(file, line, original, mutated, same)


def draw(root, folder, may_be_mutated, order):
    """All mutants below the folder, lines in the order of the draw, and those of a line, too."""
    by_line = {}
    for path in sorted((root / folder).rglob("*.[ch]pp")):
        file = str(path.relative_to(root))
        if not may_be_mutated(file):
            continue
        for mutant in mutants_of(root, file):
            by_line.setdefault(mutant.place(), []).append(mutant)
    places = sorted(by_line)
    order.shuffle(places)
    rounds = {place: order.sample(by_line[place], len(by_line[place])) for place in places}
    # A line whose mutant was refused comes again when all others have had their turn.
    for turn in range(max(map(len, rounds.values()), default=0)):
        for place in places:
            if turn < len(rounds[place]):
                yield rounds[place][turn]


def apply(tree: Path, mutant):
    path = tree / mutant.file
    source = path.read_text().splitlines(keepends=True)
    source[mutant.line - 1] = mutant.mutated
    path.write_text("".join(source))
