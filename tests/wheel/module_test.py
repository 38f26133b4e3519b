"""The Python module ddp_launch: jobs, their results, and what is refused. Of the ddp-launch that DDP_LAUNCH names, or that is installed."""
import contextlib
import json
import os
import pathlib
import pty
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
        result = ddp_launch.run(["sleep", "60"], timeout=2, shutdown_timeout=5)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.exit_code, 128 + signal.SIGTERM)
        self.assertIn("still ran after 2 s and was stopped\nstopped by SIGTERM", result.report)

    def test_may_take_as_long_as_it_wants(self):
        self.assertEqual(ddp_launch.run(["true"], timeout=0), ddp_launch.LaunchResult(0))

    def test_adds_variables_and_options(self):
        os.environ["SIZE"] = "small"
        with tempfile.TemporaryDirectory() as logs:
            _, lines = lines_of(
                "echo $COLOUR $SIZE $DDP_LAUNCH_HOST; echo words >&2",
                environment={"COLOUR": "green", "SIZE": "large"},
                log_dir=logs,
                arguments=["--redirects=3"],
            )
            self.assertEqual(lines, ["green large"])
            files = [path for path in pathlib.Path(logs).rglob("*") if path.is_file()]
            self.assertIn("words\n", [path.read_text() for path in files])

    def test_a_script_is_run_by_python(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text("import sys; sys.exit(int(sys.argv[1]))")
            self.assertEqual(ddp_launch.run([str(script), "9"]).exit_code, 9)

    def test_an_old_python_will_do(self):
        with without(os, "pidfd_open"):
            self.assertEqual(ddp_launch.run(["sh", "-c", "exit 3"]).exit_code, 3)

    def test_a_closed_stdin_is_no_hindrance(self):
        program = "import ddp_launch; print(ddp_launch.run(['true']).ok)"
        closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", program]
        self.assertEqual(subprocess.run(closed, stdout=subprocess.PIPE, text=True).stdout, "True\n")

    def test_what_ends_without_a_result_has_not_succeeded(self):
        with launcher("/bin/true"):
            result = ddp_launch.run(["true"])
        self.assertEqual(result.exit_code, 1)
        self.assertIn("/true is gone and has left no result", result.report)

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
        with self.assertRaisesRegex(ValueError, "whole seconds"):
            ddp_launch.run(["true"], shutdown_timeout=2.5)

    def test_a_launcher_that_is_not_there_is_an_error(self):
        with launcher("/nowhere/ddp-launch"):
            with self.assertRaisesRegex(ddp_launch.LaunchError, "DDP_LAUNCH is /nowhere/ddp-launch, which is no program"):
                ddp_launch.run(["true"])
            said = subprocess.run([sys.executable, "-m", "ddp_launch"], stderr=subprocess.PIPE, text=True)
        self.assertEqual(said.returncode, 1)
        self.assertIn("ddp_launch: DDP_LAUNCH is /nowhere/ddp-launch", said.stderr)

    def test_a_launcher_that_was_killed_is_a_result(self):
        result = ddp_launch.run(["sh", "-c", "kill -9 $(sed -n s/^PPid://p /proc/$PPID/status)"])
        self.assertEqual(result.exit_code, 128 + signal.SIGKILL)
        self.assertIn("is gone and has left no result", result.report)


    # As one is whose SIGCHLD another library handles.
    def test_a_launcher_that_somebody_else_has_waited_for_has_not_succeeded(self):
        program = """
import ddp_launch, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(ddp_launch.run(["sh", "-c", "kill -9 $(sed -n s/^PPid://p /proc/$PPID/status)"]).ok, ddp_launch.run(["sh", "-c", "exit 5"]).exit_code)
"""
        said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        self.assertEqual(said.stdout, "False 5\n")


class Progress(unittest.TestCase):
    worker = """
import ddp_launch, os, sys, time
told = [ddp_launch.publish_progress(step, 2.5) for step in range(40 + int(os.environ["RANK"]))]
open(sys.argv[1] + "/" + os.environ["RANK"], "w").write(str(set(told)))
while not os.path.exists(sys.argv[1] + "/end"):
    time.sleep(0.01)
"""

    def test_is_shown_by_inspect(self):
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.basename(folder)
            job = subprocess.Popen(
                [ddp_launch.launcher_path(), "-n", "2", "--rdzv-id", name, "--", sys.executable, "-c", self.worker, folder])
            try:
                while len(os.listdir(folder)) < 2:
                    self.assertIsNone(job.poll())
                    time.sleep(0.02)
                shown = subprocess.run([ddp_launch.launcher_path(), "inspect", name, "--json"], stdout=subprocess.PIPE, check=True).stdout
                ranks = json.loads(shown)["ranks"]
                self.assertEqual([(rank["step"], rank["steps_per_second"]) for rank in ranks], [(39, 2.5), (40, 2.5)])
                self.assertEqual((pathlib.Path(folder) / "1").read_text(), "{True}")
            finally:
                (pathlib.Path(folder) / "end").touch()
                self.assertEqual(job.wait(), 0)

    def drill(self, fault, *options, steps=9):
        program = f"import ddp_launch\nfor step in range({steps}): ddp_launch.publish_progress(step)"
        return subprocess.run(
            [ddp_launch.launcher_path(), f"--inject={fault}", *options, "--", sys.executable, "-c", program],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def test_does_drills_at_a_step_in_the_first_start(self):
        said = self.drill("kill:rank=0@step=5", "--max-restarts=1")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("ddp_launch: --inject: kill at step 5", said.stderr)
        self.assertIn("failed: SIGKILL", said.stderr)
        self.assertEqual(self.drill("exit:rank=1@step=2", "-n", "2").returncode, 1)
        began = time.monotonic()
        self.assertEqual(self.drill("delay:rank=0@step=3").returncode, 0)
        self.assertGreater(time.monotonic() - began, 2)

    def test_stops_itself_for_a_drill_and_the_launcher_says_so(self):
        job = subprocess.Popen(
            [ddp_launch.launcher_path(), "--inject=stop:rank=0@step=1", "--on-hang=stop", "--hang-timeout=1", "--shutdown-timeout=1",
             "--", sys.executable, "-c", "import ddp_launch; ddp_launch.publish_progress(1)"], stderr=subprocess.PIPE, text=True)
        with job:
            for line in job.stderr:
                if "kill -CONT" in line:
                    os.kill(int(line.split("kill -CONT ")[1].split()[0]), signal.SIGCONT)
        self.assertEqual(job.returncode, 0)

    def test_a_drill_that_was_not_done_is_said(self):
        said = self.drill("exit:rank=0@step=20")
        self.assertEqual(said.returncode, 0)
        self.assertIn("nothing was done: the last step that rank 0 has published is 8", said.stderr)
        said = self.drill("mismatch:rank=0@step=2")
        self.assertEqual(said.returncode, 0)
        self.assertIn("nothing was done: rank 0 is in no group of ddp's", said.stderr)

    def test_is_told_to_nobody_where_there_is_no_launcher(self):
        with tempfile.TemporaryFile() as other:
            for handed in (None, "", "x", "5", "5:", "-1:a", "999:a", "99999999999999999999:a", f"{other.fileno()}:a", "0:a"):
                variables = {name: value for name, value in os.environ.items() if not name.startswith("DDP_CONTROL")}
                if handed is not None:
                    variables.update(DDP_CONTROL_FD=handed, DDP_CONTROL_PAGE="0")
                said = subprocess.run(
                    [sys.executable, "-c", "import ddp_launch; print(ddp_launch.publish_progress(1))"],
                    env=variables, pass_fds=[other.fileno()], stdout=subprocess.PIPE, text=True)
                self.assertEqual(said.stdout, "False\n", handed)

    def test_is_a_number(self):
        for wrong in ("many", None):
            with self.assertRaises((TypeError, ValueError)):
                ddp_launch.publish_progress(wrong)


@contextlib.contextmanager
def launcher(path):
    named = os.environ.get("DDP_LAUNCH")
    os.environ["DDP_LAUNCH"] = path
    try:
        yield
    finally:
        os.environ.pop("DDP_LAUNCH")
        if named:
            os.environ["DDP_LAUNCH"] = named


@contextlib.contextmanager
def without(module, name):
    known = getattr(module, name)
    delattr(module, name)
    try:
        yield
    finally:
        setattr(module, name, known)


class End(unittest.TestCase):
    """Of a program that runs a job."""

    program_text = """
import ddp_launch
try:
    ddp_launch.run(["sh", "-c", "echo $$; exec sleep 600"], shutdown_timeout=5)
except KeyboardInterrupt:
    print("caught", flush=True)
"""

    def start(self):
        self.program = subprocess.Popen([sys.executable, "-c", self.program_text], stdout=subprocess.PIPE, text=True)
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
        worker = self.start()
        self.program.kill()
        self.program.communicate()
        self.assertTrue(self.wait_for_end(worker))

    def test_an_interrupted_one_has_ended_the_job_before_it_goes_on(self):
        worker = self.start()
        self.program.send_signal(signal.SIGINT)
        self.assertEqual(self.program.stdout.readline(), "caught\n")
        self.assertFalse(self.lives(worker))
        self.program.communicate()

    def test_an_interrupt_while_it_is_started_ends_it_too(self):
        self.program_text = """
import os, signal, subprocess, time
start = subprocess.Popen
def start_and_be_interrupted(*words, **options):
    process = start(*words, **options)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    return process
subprocess.Popen = start_and_be_interrupted
""" + self.program_text
        worker = self.start()
        self.assertEqual(self.program.stdout.readline(), "caught\n")
        self.assertFalse(self.lives(worker))
        self.program.communicate()

    def test_ctrl_c_at_its_terminal_does_the_same(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", self.program_text])
        with os.fdopen(terminal, "rb", buffering=0) as said:
            text = b""
            while not text.strip().split(b"\n")[-1].strip().isdigit() or not text.endswith(b"\n"):
                text += said.read(1)
            worker = int(text.strip().split(b"\n")[-1])
            os.write(terminal, b"\x03")
            while b"caught" not in text:
                text += said.read(1)
            self.assertFalse(self.lives(worker))
            os.waitpid(pid, 0)


if __name__ == "__main__":
    unittest.main()
