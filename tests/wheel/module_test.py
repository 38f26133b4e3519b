"""The Python module ddp_launch: jobs, their results, and what is refused. Of the ddp-launch that DDP_LAUNCH names, or that is installed."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ddp_launch


def lines_of(command, **options):
    """What the workers have written, each to a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = ddp_launch.run(["sh", "-c", f"({command}) > {folder}/$RANK"], **options)
        return result, [path.read_text().strip() for path in sorted(pathlib.Path(folder).iterdir())]


class Run(unittest.TestCase):
    def test_starts_so_many_workers_as_ranks(self):
        result, lines = lines_of("echo $RANK of $WORLD_SIZE", nproc_per_node=3)
        self.assertEqual(lines, ["0 of 3", "1 of 3", "2 of 3"])
        self.assertTrue(result.ok)
        self.assertEqual(result, ddp_launch.LaunchResult(0))

    def test_has_the_exit_code_of_the_first_failure_and_says_whose_it_was(self):
        result = ddp_launch.run(["sh", "-c", "[ $RANK = 0 ] || exit 7; sleep 60"], nproc_per_node=2)
        self.assertEqual(result.exit_code, 7)
        self.assertFalse(result.ok)
        self.assertIn("rank 1 (local rank 1, pid ", result.report)
        self.assertIn("failed: exit code 7", result.report)

    def test_starts_workers_again(self):
        result, lines = lines_of("echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]", max_restarts=1)
        self.assertEqual((result.exit_code, lines), (0, ["1"]))

    def test_stops_a_job_after_its_time(self):
        result = ddp_launch.run(["sleep", "60"], timeout=0.3, shutdown_timeout=5)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.exit_code, 128 + signal.SIGTERM)

    def test_adds_variables_and_options(self):
        _, lines = lines_of("echo $COLOUR $DDP_LAUNCH_HOST; pwd >&2", environment={"COLOUR": "green"}, arguments=["--redirects=2"])
        self.assertEqual(lines, ["green"])

    def test_a_program_that_is_not_there_is_a_result(self):
        result = ddp_launch.run(["/nowhere/train"])
        self.assertEqual(result.exit_code, 127)
        self.assertIn("/nowhere/train", result.report)

    def test_an_option_that_is_refused_is_an_error(self):
        with self.assertRaisesRegex(ddp_launch.LaunchError, "--nonsense"):
            ddp_launch.run(["true"], arguments=["--nonsense"])

    def test_what_is_no_command_is_an_error(self):
        for command in ([], "sleep 1", [""]):
            with self.assertRaises(ValueError):
                ddp_launch.run(command)

    def test_a_launcher_that_is_not_there_is_an_error(self):
        named = os.environ.get("DDP_LAUNCH")
        os.environ["DDP_LAUNCH"] = "/nowhere/ddp-launch"
        try:
            with self.assertRaisesRegex(ddp_launch.LaunchError, "cannot start /nowhere/ddp-launch: No such file"):
                ddp_launch.run(["true"])
        finally:
            os.environ.pop("DDP_LAUNCH")
            if named:
                os.environ["DDP_LAUNCH"] = named

    def test_a_launcher_that_was_killed_is_a_result(self):
        result = ddp_launch.run(["sh", "-c", "kill -9 $(ps -o ppid= $PPID)"])
        self.assertEqual(result.exit_code, 128 + signal.SIGKILL)
        self.assertIn("is gone and has left no result", result.report)


class End(unittest.TestCase):
    """Of a program that runs a job."""

    def start(self, catching):
        program = f"""
import ddp_launch
try:
    ddp_launch.run(["sh", "-c", "echo $$; exec sleep 600"], shutdown_timeout=5)
except {catching}:
    print("caught", flush=True)
"""
        self.program = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        return int(self.program.stdout.readline())

    def lives(self, pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    def wait_for_end(self, pid):
        for _ in range(1000):
            if not self.lives(pid):
                return True
            time.sleep(0.02)
        return False

    def test_a_killed_one_leaves_nothing(self):
        worker = self.start("KeyboardInterrupt")
        self.program.kill()
        self.program.communicate()
        self.assertTrue(self.wait_for_end(worker))

    def test_an_interrupted_one_has_ended_the_job_before_it_goes_on(self):
        worker = self.start("KeyboardInterrupt")
        self.program.send_signal(signal.SIGINT)
        self.assertEqual(self.program.stdout.readline(), "caught\n")
        self.assertFalse(self.lives(worker))
        self.program.communicate()


if __name__ == "__main__":
    unittest.main()
