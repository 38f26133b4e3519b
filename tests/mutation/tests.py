"""The tests of the rooms: how long each takes without a mutant, and which are nearest to a source."""

import json
import re
import sys

# Without a mutant, of a test.
LONGEST = 5 * 60
SUITES = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+)", re.MULTILINE)


class Tests:
    def __init__(self, root, file):
        self.root = root
        self.file = file
        # {program: {test: seconds}}; none for a test that fails in the sandbox without a mutant: it needs what is not there.
        self.known = json.loads(file.read_text()) if file.exists() else {}
        self.chosen = {}
        self.suites = {}

    # Without a mutant ---------------------------------------------------------------------------

    def measure(self, sandbox, program, chosen):
        """How long each test takes; tests known already are not run again."""
        tests = sandbox.list_tests(program, chosen)
        self.chosen[program.name, chosen] = tests
        known = self.known.setdefault(program.name, {})
        new = [test for test in tests if test not in known]
        if not new:
            return
        seconds = sandbox.run(program, new, {}, lambda test: LONGEST, options=()).seconds
        for test in new:
            for _ in range(2):
                if test not in seconds:
                    seconds.update(sandbox.run(program, [test], {}, lambda test: LONGEST).seconds)
            known[test] = seconds.get(test)
        left_out = [test for test in new if known[test] is None]
        if len(left_out) * 2 > len(new):
            sys.exit(f"mutate: {program} fails without a mutant; see {sandbox.logs}")
        self.file.write_text(json.dumps(self.known, indent=1))
        print(f"{program.name} {chosen}: {len(new)} tests, {sum(filter(None, seconds.values())):.0f} s without a mutant"
              + "".join(f"\n  left out, as it fails in the sandbox: {test}" for test in left_out), flush=True)

    # With one -----------------------------------------------------------------------------------

    def parts(self, programs, file):
        """[(program, tests)]: first the tests nearest to the file, which kill most of its mutants, then all others, those of a
        program first that is named as one of the file's folders."""
        near, far = [], []
        folders = file.split("/")[2:-1]
        for name, chosen in sorted(programs, key=lambda one: not any(folder in one[0] for folder in folders)):
            known = self.known.get(name, {})
            tests = [test for test in self.chosen.get((name, chosen), []) if known[test] is not None]
            first = [test for test in tests if self.is_near(test, file)]
            near.append((name, first))
            far.append((name, [test for test in tests if test not in set(first)]))
        return [(name, tests) for name, tests in near + far if tests]

    def is_near(self, test, file):
        if file not in self.suites:
            self.suites[file] = self.nearest_suites(file)
        return not self.suites[file].isdisjoint(test.split(".")[0].split("/"))

    def nearest_suites(self, file):
        """Those of the test files that are named as the file or include its header."""
        stem = file.split("/")[-1].split(".")[0]
        header = re.sub(r"^runtime/|\.\w+$", "", file) + '.hpp"'
        suites = set()
        for path in (self.root / "tests").rglob("*_test.cpp"):
            text = path.read_text()
            if path.stem == f"{stem}_test" or f'#include "{header}' in text:
                suites.update(SUITES.findall(text))
        return suites

    def run(self, sandbox, program, tests):
        """What failed, or nothing. A failure counts that is there again when its test runs alone."""
        for _ in range(2):
            outcome = self.run_once(sandbox, program, tests)
            if not outcome.failure:
                return ""
            again = [outcome.test] if outcome.test in tests else tests
            if self.run_once(sandbox, program, again).failure:
                return outcome.failure
        return ""

    def run_once(self, sandbox, program, tests):
        """Four times as long as without a mutant is for ever."""
        known = self.known[program.name]
        return sandbox.run(program, tests, known, lambda test: 10 + 4 * (known.get(test) or 0))
