"""Where mutants run: what they kill and remove is theirs. In a PID namespace nothing outlives a test program, and in a mount
namespace all is read-only but a new /tmp and /dev/shm."""

import json
import re
import subprocess
import time

LONGEST = 10 * 60  # of a test program
MEMORY_KB = 16 * 1024 * 1024

# As PID 1 stands a shell, and another one below it: the test program and its parent are to be processes as any.
SCRIPT = r"""
mount -t tmpfs -o size=4g tmpfs /tmp && mount -t tmpfs -o size=4g tmpfs /dev/shm || exit 125
while read -r _ target type _; do
    case $type in proc | sysfs | cgroup* | devtmpfs | devpts | tmpfs | mqueue) continue ;; esac
    mount -o remount,bind,ro "$(printf '%b' "$target")" || exit 125
done </proc/self/mounts
ulimit -v "$0"
cd /tmp
bash -c '"$@"; exit $?' - "$@"
exit $?
"""


def unshared(command):
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
            "--", "bash", "-c", SCRIPT, str(MEMORY_KB), *command]


class Sandbox:
    def __init__(self, folder, through):
        self.folder = folder
        self.through = through
        self.log = folder / "test.log"
        self.times = folder / "times.json"  # without a mutant
        self.known = json.loads(self.times.read_text()) if self.times.exists() else {}

    def why_not(self):
        if str(self.folder.resolve()).startswith(("/tmp/", "/dev/shm/")):
            return f"{self.folder} lies where tests get an empty folder; take another one with --build"
        try:
            probe = subprocess.run(unshared(["true"]), capture_output=True, text=True, timeout=60, check=False)
        except OSError as error:
            return str(error)
        return f"this host makes no namespaces for mutants: {probe.stderr.strip()}" if probe.returncode else ""

    def knows(self, program, chosen):
        return f"{program} {chosen}" in self.known

    def seconds(self, program, chosen):
        return self.known[f"{program} {chosen}"]["seconds"]

    def left_out(self, program, chosen):
        """Tests that fail here without a mutant: they need what a sandbox has not."""
        return self.known.get(f"{program} {chosen}", {}).get("left_out", [])

    def measure(self, program, chosen):
        """What fails without a mutant also when all that failed at first is left out, or nothing."""
        failed = []
        start = time.monotonic()
        still = self.run_for(program, chosen, [], LONGEST, ["--gtest_fail_fast=0"])
        if still:
            failed = sorted(set(self.failures()))
            start = time.monotonic()
            still = self.run_for(program, chosen, failed, LONGEST)
        if not still:
            entry = {"seconds": time.monotonic() - start, "left_out": failed}
            self.known[f"{program.name} {chosen}"] = entry
            self.times.write_text(json.dumps(self.known, indent=1))
        return still

    def run(self, program, chosen):
        """What failed first, or nothing. Three times as long as without a mutant is for ever."""
        limit = 20 + 3 * self.seconds(program.name, chosen)
        return self.run_for(program, chosen, self.left_out(program.name, chosen), limit)

    def run_for(self, program, chosen, left_out, limit, options=("--gtest_fail_fast",)):
        without = ":".join(["*.Soak*", *left_out])
        command = [str(program), *options, f"--gtest_filter={chosen or '*'}-{without}"]
        with open(self.log, "w", encoding="utf-8", errors="replace") as log:
            # Not Python's timeout: what stands in front may wait for its turn, and would not pass a signal on.
            watched = ["timeout", "--signal=KILL", f"{limit:.0f}", *unshared(command)]
            start = time.monotonic()
            result = subprocess.run(self.through + watched, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    check=False)
        if result.returncode in (-9, 137) and time.monotonic() - start >= limit:
            return f"no end after {limit:.0f} s in {self.last_test()}"
        return "" if result.returncode == 0 else self.first_failure(result.returncode)

    def output(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def last_test(self):
        started = re.findall(r"^\[ RUN      \] (\S+)", self.output(), re.MULTILINE)
        return started[-1] if started else "no test"

    def failures(self):
        return re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", self.output(), re.MULTILINE)

    def first_failure(self, code):
        failed = self.failures()
        return failed[0] if failed else f"status {code} in {self.last_test()}"
