"""The package ddp_launch_torchrun: torchrun, and who calls torch.distributed.run, start jobs by ddp-launch, and the Python that it is
installed in is otherwise as before. With Debian's PyTorch, in an environment made here, and the ddp-launch that DDP_LAUNCH names.
With DDP_NEWEST_TORCH that PyTorch, and accelerate and fabric themselves."""
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import venv

NEWEST = os.environ.get("DDP_NEWEST_TORCH")  # a folder of install-deps.sh --torch, instead of Debian's
PACKAGES = pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel"

# Says who started it, and by which interpreter. The first word may be torch.distributed.launch's.
WORKER = """
import os, sys
folder, *words = [word for word in sys.argv[1:] if not word.startswith("--local")]
with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
    print("ddp-launch" if "DDP_CONTROL_FD" in os.environ else "torch", sys.executable, *words, file=file)
"""
FAILS_IN_RANK_1 = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)\n"

# As accelerate does it: defaults, some of which it sets.
CALLER = """
import sys
import torch.distributed.run as distrib_run
script, *arguments = sys.argv[1:]
args, _ = distrib_run.get_args_parser().parse_known_args(["--training_script", script, "--training_script_args", arguments])
args.training_script, args.training_script_args = script, arguments
args.nproc_per_node, args.rdzv_conf, args.max_restarts = "2", "", 0
"""


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Environment(unittest.TestCase):
    """A virtual one, in which PyTorch is, and the package."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.environment = cls.root / "environment"
        venv.create(cls.environment, system_site_packages=True, symlinks=True)
        cls.python = str(cls.environment / "bin/python3")
        (site,) = cls.environment.glob("lib/python3*/site-packages")
        if NEWEST:
            (its_site,) = pathlib.Path(NEWEST).glob("lib/python3*/site-packages")
            (site / "newest_torch.pth").write_text(f"{its_site}\n")
        for package in ("ddp_launch", "ddp_launch_torchrun"):
            (site / package).symlink_to(PACKAGES / package)
        shutil.copy(PACKAGES / "ddp_launch_torchrun.pth", site)
        # As pip writes it.
        cls.torchrun = cls.environment / "bin/torchrun"
        cls.torchrun.write_text(f"#!{cls.python}\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
        cls.torchrun.chmod(0o755)
        cls.worker = cls.write("worker.py", WORKER)
        cls.failing = cls.write("failing.py", FAILS_IN_RANK_1)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, text):
        path = cls.root / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    def run_command(self, *words, **variables):
        return subprocess.run(
            [str(word) for word in words], env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=60)

    def told_by_workers(self, *words, behind=(), **variables):
        """Of `words` with the worker's script, a folder for it, and `behind`: what the workers wrote."""
        with tempfile.TemporaryDirectory() as folder:
            ended = self.run_command(*words, self.worker, folder, *behind, **variables)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return [path.read_text().split() for path in sorted(pathlib.Path(folder).iterdir())]


class Torchrun(Environment):
    def test_the_script_is_ours(self):
        ours = ["ddp-launch", self.python]
        self.assertEqual(self.told_by_workers(self.torchrun, "--nproc_per_node=2"), [ours] * 2)
        self.assertEqual(
            self.told_by_workers(self.python, "-u", "-X", "dev", "-Wignore", self.torchrun, "--standalone", behind=["--lr", "-m"]),
            [ours + ["--lr", "-m"]])
        debians = self.write("torchrun", "#!/usr/bin/python3.11\n# EASY-INSTALL-ENTRY-SCRIPT: 'torch==1.13.0a0','console_scripts','torchrun'\n")
        self.assertEqual(self.told_by_workers(self.python, debians), [ours])

    def test_the_module_is_ours(self):
        for words in (["-m", "torch.distributed.run"], ["-um", "torch.distributed.run"], ["-mtorch.distributed.run"]):
            self.assertEqual(self.told_by_workers(self.python, *words, "-n2"), [["ddp-launch", self.python]] * 2)

    def test_another_interpreter_may_be_named(self):
        self.assertEqual(
            self.told_by_workers(self.torchrun, PYTHON_EXEC="/usr/bin/python3"), [["ddp-launch", "/usr/bin/python3"]])
        self.assertEqual(self.told_by_workers(self.torchrun, "--python=/usr/bin/python3"), [["ddp-launch", "/usr/bin/python3"]])

    def test_a_debugger_that_runs_the_module_gets_ours(self):
        debugger = self.write("debugger.py", """
            import runpy, sys
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            """)
        self.assertEqual(
            self.told_by_workers(self.python, debugger, "torch.distributed.run", "--nproc_per_node=2"),
            [["ddp-launch", self.python]] * 2)

    def test_other_commands_are_left_alone(self):
        command = "import sys; print(sys.argv[1:], [name for name in sys.modules if name.startswith(('torch', 'ddp_launch.'))])"
        said = self.run_command(self.python, "-c", command, "-m", "torch.distributed.run")
        self.assertEqual(said.stdout, "['-m', 'torch.distributed.run'] []\n")
        own = self.write("torchrun", "import sys\nprint('my own')\nif len(sys.argv) > 9:\n    from torch.distributed.run import main\n")
        self.assertEqual(self.run_command(self.python, own).stdout, "my own\n")

    def test_which_command_lines_are_torchruns(self):
        sys.path.insert(0, str(PACKAGES))
        from ddp_launch_torchrun import arguments_for_torchrun

        torchrun, module = str(self.torchrun), "torch.distributed.run"
        for line, words in (
            ([], None), (["python"], None), (["python", "-"], None), (["python", "-m"], None), (["python", "-c"], None), (["python", "-X"], None),
            (["python", torchrun, "a"], ["a"]), (["python", "-X", "-m", torchrun], []), (["python", "-W", torchrun, "x"], None),
            (["python", "-m", module, "-m", "a"], ["-m", "a"]), (["python", "-Im" + module, "a"], ["a"]),
            (["python", "-m", "timeit", "-m", module], None), (["python", "-c", "0", torchrun], None),
            (["python", "--check-hash-based-pycs", "never", torchrun], []), (["python", "x.py", torchrun], None),
            (["python", "/nowhere/torchrun"], None), (["python", str(PACKAGES)], None),
            (["python", torchrun, "--print-completion", "bash"], None), (["python", torchrun, "--print_completion=zsh"], None),
        ):
            self.assertEqual(arguments_for_torchrun(line), words, line)

    # Debian's own cannot start a worker: it does not know this Python's enumerations.
    def expect_torchs_own(self, *words, **variables):
        said = self.run_command(*words, **variables)
        self.assertNotIn("ddp-launch", said.stderr)
        if NEWEST:
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual((self.root / "0").read_text().split()[0], "torch")
        else:
            self.assertIn("torch/distributed/launcher/api.py", said.stderr)

    def test_it_is_torchs_again_where_that_is_asked_for(self):
        for words in ([self.torchrun], [self.python, "-m", "torch.distributed.run"]):
            self.expect_torchs_own(*words, self.worker, self.root, DDP_TORCHRUN="off")

    def test_without_a_launcher_that_is_said(self):
        said = self.run_command(self.torchrun, self.worker, DDP_LAUNCH="/nowhere/ddp-launch")
        self.assertEqual(said.returncode, 1)
        self.assertIn("DDP_LAUNCH is /nowhere/ddp-launch, which is no program", said.stderr)

    def test_a_call_starts_the_job_and_returns(self):
        caller = self.write("caller.py", CALLER + "print(distrib_run.run(args), args.nproc_per_node)\n")
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_command(self.python, caller, self.worker, folder, "--lr=1")
            self.assertEqual((said.returncode, said.stdout), (0, "None 2\n"), said.stderr)
            self.assertEqual(
                [path.read_text().split() for path in sorted(pathlib.Path(folder).iterdir())], [["ddp-launch", self.python, "--lr=1"]] * 2)

    # As fabric does it.
    def test_a_call_of_main_does_the_same(self):
        caller = self.write("fabric.py", """
            import sys
            import torch.distributed.run as torchrun
            torchrun.main(["--nproc_per_node=2", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=0", *sys.argv[1:]])
            print("returned")
            """)
        self.assertEqual(self.told_by_workers(self.python, caller), [["ddp-launch", self.python]] * 2)

    def expect_quiet_end(self, program, script, code, text):
        """Of a caller that catches nothing: `code`, `text` on stderr, and no traceback."""
        said = self.run_command(self.python, self.write("caller.py", CALLER + program), script)
        self.assertEqual(said.returncode, code)
        self.assertIn(text, said.stderr)
        self.assertNotIn("Traceback", said.stderr)

    def test_a_failure_ends_the_caller_with_the_ranks_code(self):
        self.expect_quiet_end("distrib_run.run(args)\n", self.failing, 7, "failed: exit code 7")

    def test_an_option_that_is_refused_ends_it_with_2(self):
        self.expect_quiet_end("args.nproc_per_node = 'many'\ndistrib_run.run(args)\n", self.worker, 2, "many")

    def test_a_failure_is_the_exception_that_is_expected(self):
        caller = self.write("caller.py", CALLER + """
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
try:
    distrib_run.run(args)
except ChildFailedError as error:
    rank, failure = error.get_first_failure()
    print(rank, failure.local_rank, failure.exitcode, "failed: exit code 7" in failure.message)
""")
        self.assertEqual(self.run_command(self.python, caller, self.failing).stdout, "1 1 7 True\n")

    def test_the_options_of_torchrun_arrive(self):
        program = CALLER + """
from ddp_launch_torchrun._run import command_line_of
args.tee, args.log_dir, args.module, args.standalone, args.rdzv_id = "3", "logs", True, True, "a b"
args.role, args.no_python = ["one,two", "three"], False
print(*command_line_of(args, distrib_run.get_args_parser()), sep="\\n")
"""
        said = self.run_command(
            self.python, self.write("caller.py", program), "train", "--lr", PET_NO_PYTHON="1", PET_TEE="3")
        words = [f"--python={self.python}", "--nproc-per-node=2", "--rdzv-id=a b", "--standalone", "--role=one,,two,three", "--module",
                 "--log-dir=logs", "--", "train", "--lr"]
        said_so = re.sub("--[a-z_]+", lambda name: name[0].replace("_", "-"), said.stdout)  # as newer ones call them
        self.assertEqual(said_so, f"{words}\n{{'PET_NO_PYTHON': ''}}\n", said.stderr)

    def test_the_module_is_otherwise_as_it_was(self):
        caller = self.write("caller.py", """
            import copy, pickle, runpy, sys
            import torch.distributed.run as distrib_run
            assert pickle.loads(pickle.dumps(distrib_run.run)) is distrib_run.run
            assert copy.deepcopy(distrib_run.__spec__).name == "torch.distributed.run"
            assert hasattr(distrib_run, "config_from_args") and "def config_from_args" in distrib_run.__loader__.get_source("torch.distributed.run")
            del sys.modules["torch.distributed.run"]
            assert "get_args_parser" in runpy.run_module("torch.distributed.run")
            print("as it was")
            """)
        self.assertEqual(self.run_command(self.python, caller).stdout, "as it was\n")

    def test_it_is_torchs_where_ours_is_not_whole(self):
        caller = self.write("caller.py", """
            import sys
            sys.modules["ddp_launch"] = None
            import torch.distributed.run as distrib_run
            print(distrib_run.run.__code__.co_filename.endswith("torch/distributed/run.py"))
            """)
        said = self.run_command(self.python, caller)
        self.assertEqual(said.stdout, "True\n")
        self.assertIn("ddp_launch_torchrun: torchrun is PyTorch's own: ", said.stderr)

    # Which would lose sight of the workers.
    def test_it_is_torchs_under_a_debugger(self):
        caller = self.write("caller.py", "import sys\nsys.modules['pydevd'] = sys\n" + CALLER + "distrib_run.run(args)\n")
        self.expect_torchs_own(self.python, caller, self.worker, self.root)

    def test_a_failure_in_a_thread_of_the_caller_is_an_exception(self):
        caller = self.write("caller.py", CALLER + """
import asyncio
async def main():
    print(await asyncio.gather(asyncio.to_thread(distrib_run.run, args), return_exceptions=True))
asyncio.run(main())
""")
        self.assertIn("failed: exit code 7", self.run_command(self.python, caller, self.failing).stdout)

    def test_a_signal_that_comes_early_is_passed_on(self):
        caller = self.write("caller.py", "import os, signal, subprocess\n" + CALLER + """
start = subprocess.Popen.__init__
def early(*words, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    start(*words, **options)
    os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen.__init__ = early
signal.signal(signal.SIGTERM, lambda *words: print("never"))
try:
    distrib_run.run(args)
except distrib_run.elastic_launch.__call__.__globals__["SignalException"] as error:
    print(error.sigval, signal.getsignal(signal.SIGTERM)())
""")
        script = self.write("sleeps.py", "import time\ntime.sleep(600)\n")
        self.assertEqual(self.run_command(self.python, caller, script).stdout, "never\n15 None\n")

    def start_caller(self):
        """One whose worker sleeps, and that worker's pid."""
        caller = self.write("caller.py", CALLER + "args.nproc_per_node = '1'\ndistrib_run.run(args)\n")
        script = self.write("sleeps.py", "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
        started = subprocess.Popen([self.python, caller, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return started, int(started.stdout.readline())

    def test_signals_to_the_caller_end_the_job(self):
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            caller, worker = self.start_caller()
            caller.send_signal(one)
            _, said = caller.communicate(timeout=60)
            self.assertEqual(caller.returncode, 128 + one, said)
            self.assertNotIn("caller.py", said, "a traceback")
            self.assertFalse(lives(worker))

    def test_a_caller_that_is_killed_leaves_nothing(self):
        caller, worker = self.start_caller()
        caller.kill()
        caller.communicate(timeout=60)
        ends_by = time.monotonic() + 20
        while lives(worker) and time.monotonic() < ends_by:
            time.sleep(0.02)
        self.assertFalse(lives(worker))

    # Its scripts want an argument that no other launcher gives.
    def test_the_oldest_launcher_remains_torchs(self):
        self.assertEqual(
            self.told_by_workers(self.python, "-Wignore", "-m", "torch.distributed.launch", "--use_env"), [["ddp-launch", self.python]])
        self.expect_torchs_own(self.python, "-Wignore", "-m", "torch.distributed.launch", self.worker, self.root)


@unittest.skipUnless(NEWEST, "DDP_NEWEST_TORCH names no folder of install-deps.sh --torch")
class Callers(Environment):
    """Those that call it: unchanged, and the newest that pip has."""

    accelerate = ["-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
                  "--mixed_precision=no", "--dynamo_backend=no"]
    fabric = ["-m", "lightning_fabric.cli", "--accelerator=cpu", "--devices=2"]

    def test_start_their_jobs_by_ours(self):
        for words in (self.accelerate, self.fabric):
            self.assertEqual(
                self.told_by_workers(self.python, *words, ACCELERATE_USE_CPU="true"), [["ddp-launch", self.python]] * 2)

    def test_end_as_the_rank_that_failed(self):
        for words in (self.accelerate, self.fabric):
            said = self.run_command(self.python, *words, self.failing, ACCELERATE_USE_CPU="true")
            self.assertEqual(said.returncode, 7, said.stderr)
            self.assertIn("failed: exit code 7", said.stderr)
            self.assertNotIn("Traceback", said.stderr)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None and os.environ.get("DDP_REQUIRE_INTEROP") != "1":
        print("skipped: no python3-torch; tools/install-deps.sh --interop")
        sys.exit(77)
    unittest.main()
