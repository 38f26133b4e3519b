"""Where mutants run: what they kill and remove is theirs. In a PID namespace nothing outlives a test program, and in a mount
namespace all is read-only but a new /tmp and /dev/shm."""

import re
import subprocess
import time
from dataclasses import dataclass

# Of a program at once: most tests wait.
SHARDS = 3
MEMORY_KB = 16 * 1024 * 1024

# As PID 1 stands a shell, and another one below it: the test program and its parent are to be processes as any. The network is that
# of the host, where tests name sockets by their number: it differs from those in other sandboxes.
SCRIPT = r"""
mount -t tmpfs -o size=4g tmpfs /tmp && mount -t tmpfs -o size=4g tmpfs /dev/shm || exit 125
while read -r _ target type _; do
    case $type in proc | sysfs | cgroup* | devtmpfs | devpts | tmpfs | mqueue) continue ;; esac
    mount -o remount,bind,ro "$(printf '%b' "$target")" || exit 125
done </proc/self/mounts
echo $((RANDOM * 100 % ($(</proc/sys/kernel/pid_max) - 20000) + 1000)) >/proc/sys/kernel/ns_last_pid
ulimit -v "$0"
cd /tmp
bash -c '"$@"; exit $?' - "$@"
exit $?
"""


def unshared(command):
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
            "--", "bash", "-c", SCRIPT, str(MEMORY_KB), *command]


def why_not(folder):
    """Why there can be no sandbox here; empty when there can."""
    if str(folder.resolve()).startswith(("/tmp/", "/dev/shm/")):
        return f"{folder} lies where tests get an empty folder; take another one with --build"
    try:
        probe = subprocess.run(unshared(["true"]), capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return f"this host makes no namespaces for mutants: {probe.stderr.strip()}" if probe.returncode else ""


@dataclass
class Outcome:
    """Of some tests of a program."""
    seconds: dict  # {test: how long it took}, of those that passed or were skipped
    failure: str  # what ended it, or nothing
    test: str  # the test that the failure is of; empty where it is of none


class Shard:
    """A part of the tests of a program, running."""

    def __init__(self, command, tests, options, log):
        self.log = log
        self.test = ""  # the one that runs
        self.since = 0
        command = [*command, *options, "--gtest_filter=" + ":".join(tests)]
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def end(self):
        self.process.kill()
        self.process.wait()

    def find(self, pattern):
        return re.findall(pattern, self.log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)

    def seconds(self):
        return {test: int(ms) / 1000 for test, ms in self.find(r"^\[ +(?:OK|SKIPPED) \] (\S+) \((\d+) ms\)")}

    def failed(self):
        return self.find(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)")

    def last_test(self):
        return (self.find(r"^\[ RUN      \] (\S+)") or [""])[-1]

    def failure(self, code):
        """What failed, and which test that is of."""
        failed = self.failed()
        if failed:
            return failed[0], failed[0]
        test = self.last_test()
        return f"status {code} in {test or 'no test'}", test

    def hangs(self, now, longest):
        test = self.last_test()
        if test != self.test:
            self.test, self.since = test, now
        return now - self.since > longest(test)


class Sandbox:
    def __init__(self, copy):
        self.copy = copy
        self.before = copy.tree.through
        self.logs = copy.folder.with_name(f"tests-{copy.folder.name}")

    def list_tests(self, program, chosen):
        command = self.before + self.copy.inside(unshared(
            [str(program), "--gtest_list_tests", f"--gtest_filter={chosen or '*'}-*.Soak*"]))
        tests, suite = [], ""
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n"):
            if re.match(r"\S+\.(\s|$)", line):
                suite = line.split()[0]
            elif line.startswith("  "):
                tests.append(suite + line.split()[0])
        return tests

    def run(self, program, tests, known, longest, options=("--gtest_fail_fast",)):
        """Until the first failure or all have ended; longest(test) is how long a test may take. The seconds known make shards
        of the same length."""
        self.logs.mkdir(exist_ok=True)
        command = self.before + self.copy.inside(unshared([str(program)]))
        shards = [Shard(command, part, options, self.logs / f"{number}.log")
                  for number, part in enumerate(shared_out(tests, known))]
        try:
            failure, test = self.watch(shards, longest, stop="--gtest_fail_fast" in options)
        finally:
            for shard in shards:
                shard.end()
        return Outcome({name: took for shard in shards for name, took in shard.seconds().items()}, failure, test)

    @staticmethod
    def watch(shards, longest, stop):
        failure, failed = "", ""
        running = list(shards)
        now, last, looked = 0, time.monotonic(), 0
        while running and not (failure and stop):
            time.sleep(0.02)
            now += min(time.monotonic() - last, 1)  # while this process was stopped, so were the tests
            last = time.monotonic()
            look = now - looked > 1
            looked = now if look else looked
            for shard in list(running):
                code = shard.process.poll()
                if code == 0:
                    running.remove(shard)
                elif code is not None:
                    running.remove(shard)
                    failure, failed = shard.failure(code)
                elif look and shard.hangs(now, longest):
                    running.remove(shard)
                    shard.end()
                    failure, failed = f"no end of {shard.test or 'a start without tests'}", shard.test
        return failure, failed


def shared_out(tests, known):
    """Parts that take about as long as each other; one where all take less than a second."""
    total = sum(known.get(test, 1) for test in tests)
    parts = [[] for _ in range(max(1, min(SHARDS, len(tests), int(total))))]
    loads = [0.0] * len(parts)
    for test in sorted(tests, key=lambda one: -known.get(one, 1)):
        least = loads.index(min(loads))
        parts[least].append(test)
        loads[least] += known.get(test, 1) + 0.01
    return parts
