"""The package ddp_runtime: ranks of Python programs over libddp.so, which DDP_LIBRARY names, started by the ddp-launch that DDP_LAUNCH
names. Arrays are of the module array, and NumPy's where that is."""
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel/ddp_runtime"

COLLECTIVES = """
from array import array
import ddp_runtime
group = ddp_runtime.init_process_group(timeout=30)
rank, size = group.rank, group.size
assert (rank, size) == (group.local_rank, group.local_size) and group.backend == "shm"
group.publish_progress(3, 1.5)

numbers = array("d", [rank, 1])
group.all_reduce(numbers)
assert numbers.tolist() == [size * (size - 1) / 2, size], numbers
for code, op, expected in (("f", "avg", (size - 1) / 2), ("i", "max", size - 1), ("q", "min", 0), ("h", "sum", size * (size - 1) // 2)):
    one = array(code, [rank])
    group.all_reduce(one, op)
    assert one[0] == expected, (code, op, one)
group.all_reduce(memoryview(bytearray(b"\\1" * 5)), "bit_or")
work = group.all_reduce(numbers, "max", wait=False)
work.wait()
assert work.is_completed()

total = array("d", [0])
group.reduce(array("d", [rank]), total if rank == 0 else None)
assert total[0] == (size * (size - 1) / 2 if rank == 0 else 0)
group.reduce_scatter(array("f", range(size)), (part := array("f", [0])), "avg")
assert part[0] == rank
group.all_gather(array("f", [rank]), (all_of_them := array("f", [0] * size)))
assert all_of_them.tolist() == list(range(size))
group.gather(array("f", [rank]), (gathered := array("f", [0] * size)) if rank == 0 else None)
assert rank or gathered == all_of_them
group.scatter(all_of_them if rank == size - 1 else None, part, root=size - 1)
assert part[0] == rank
group.all_to_all(array("f", [10 * rank + i for i in range(size)]), all_of_them)
assert all_of_them.tolist() == [10 * i + rank for i in range(size)]
group.broadcast(part if rank else memoryview(array("f", [7])).toreadonly())
assert rank == 0 or part[0] == 7

if size > 1:
    coming = group.recv(part, (rank - 1) % size, wait=False)
    group.send(array("f", [rank]), (rank + 1) % size)
    coming.wait()
    assert part[0] == (rank - 1) % size
group.barrier()
with group.split(rank % 2) as half:
    assert half.size == (size + 1 - rank % 2) // 2
    group_of_half = half
try:
    group_of_half.barrier()
except ValueError as error:
    assert "closed" in str(error)
group.close()
print("done")
"""

NUMPY = """
import numpy as np
import ddp_runtime
with ddp_runtime.init_process_group() as group:
    for dtype in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8):
        gradient = np.full((3, 4), group.rank + 1, dtype)
        group.all_reduce(gradient)
        assert (gradient == group.size * (group.size + 1) // 2).all(), dtype
    flags = np.array([group.rank == 0, False])
    group.all_reduce(flags)
    assert flags.tolist() == [True, False]
    for wrong in (np.ones((3, 4)).T, np.ones(3, complex), np.ones(3, np.uint32), np.ones(2, ">f4")):
        try:
            group.all_reduce(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    fixed = np.ones(2, np.float32)
    fixed.flags.writeable = False
    group.broadcast(fixed if group.rank == 0 else np.zeros(2, np.float32))
    try:
        group.all_reduce(fixed)
    except ValueError as error:
        assert "read-only" in str(error)
    empty = np.zeros((0, 3), np.float32)
    group.all_reduce(empty)
print("done")
"""

MISMATCH = """
from array import array
import ddp_runtime
group = ddp_runtime.init_process_group(timeout=30)
try:
    group.broadcast(array("f", [1])) if group.rank else group.all_reduce(array("f", [1]))
except ddp_runtime.GroupError as error:
    assert error.kind == "usage", error.kind
    assert "mismatch.py:6" in str(error), error
    print("done")
"""

DEATH = """
import os
import ddp_runtime
group = ddp_runtime.init_process_group(timeout=30)
if group.rank == 1:
    os.kill(os.getpid(), 9)
try:
    group.barrier()
except ddp_runtime.GroupError as error:
    assert (error.kind, error.rank) == ("peer", 1), (error.kind, error.rank)
    print("done", flush=True)
"""


# Rank 1 has not come in time.
TIMEOUT = """
import atexit, time
import ddp_runtime
group = ddp_runtime.init_process_group(timeout=1)
atexit.register(print, "at exit")
if group.rank == 1:
    time.sleep(60)
group.barrier()
"""

# Each waits for a message that nobody sends.
INTERRUPTED = """
import sys, threading, time
from array import array
import ddp_runtime

def say_when_the_helper_is_in_its_call():
    def is_in_it(thread, frame):
        return thread != threading.main_thread().ident and frame.f_code.co_name == "call"
    while not any(is_in_it(*each) for each in sys._current_frames().items()):
        time.sleep(0.01)
    print("here", flush=True)

with ddp_runtime.init_process_group() as group:
    in_flight = group.recv(array("d", [1]), 1 - group.rank, wait=False)
    threading.Thread(target=say_when_the_helper_is_in_its_call, daemon=True).start()
    try:
        group.recv(array("f", [1]), 1 - group.rank)
    except KeyboardInterrupt:
        try:
            group.barrier()
        except ValueError as error:
            print(error, flush=True)
        raise
    finally:
        print("finally", flush=True)
"""

FORK = """
import os
from array import array
import ddp_runtime
group = ddp_runtime.init_process_group()
number = array("f", [1])
work = group.recv(number, 1 - group.rank, wait=False)
child = os.fork()
if child == 0:
    try:
        group.barrier()
    except ValueError as error:
        assert "fork" in str(error)
        raise SystemExit(3)  # through what Python ends with
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
group.send(array("f", [group.rank]), 1 - group.rank)
work.wait()
assert number[0] == 1 - group.rank
before = len(os.listdir("/proc/self/fd"))
for _ in range(5):
    part = group.split(0)
    dropped = part.all_reduce(number, wait=False)
del part, dropped
assert len(os.listdir("/proc/self/fd")) <= before + 3, os.listdir("/proc/self/fd")
for wrong in (lambda: group.split((1 + group.rank) * 2**32), lambda: group.broadcast(number, 2**32), lambda: group.publish_progress(2**70)):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError(wrong)
print("done")
"""


class Runtime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "ddp_runtime").mkdir()
        for file in [*PACKAGE.glob("*.py"), pathlib.Path(os.environ["DDP_LIBRARY"])]:
            name = "libddp.so" if file.name.startswith("libddp.so") else file.name
            (cls.root / "ddp_runtime" / name).symlink_to(file)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def launch(self, name, script, ranks):
        path = self.root / f"{name}.py"
        path.write_text(textwrap.dedent(script))
        command = [os.environ["DDP_LAUNCH"], f"--nproc-per-node={ranks}", "--no-python", sys.executable, "-B", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def expect_done(self, name, script, ranks):
        result = self.launch(name, script, ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "done\n" * ranks)

    def test_collectives_give_what_they_promise(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                self.expect_done("collectives", COLLECTIVES, ranks)

    def test_arrays_of_numpy(self):
        if importlib.util.find_spec("numpy") is None and "DDP_REQUIRE_INTEROP" not in os.environ:
            self.skipTest("there is no NumPy")
        self.expect_done("numpy_arrays", NUMPY, 2)

    def test_an_error_names_the_line(self):
        self.expect_done("mismatch", MISMATCH, 2)

    def test_a_rank_that_died_is_to_blame(self):
        result = self.launch("death", DEATH, 3)
        self.assertEqual(result.returncode, 137, result.stderr)
        self.assertEqual(result.stdout, "done\n" * 2)

    def test_who_ends_because_of_another_is_not_to_blame(self):
        result = self.launch("timeout", TIMEOUT, 2)
        self.assertRegex(result.stderr, r"rank 1 \(local rank 1, pid \d+\) made the others leave", result.stderr)
        self.assertIn("rank 0 (because of rank 1, exit code 82)", result.stderr)
        self.assertIn("at exit", result.stdout)

    def test_ctrl_c_is_heard_in_a_collective(self):
        path = self.root / "interrupted.py"
        path.write_text(INTERRUPTED)
        command = [os.environ["DDP_LAUNCH"], "--nproc-per-node=2", "--no-python", sys.executable, "-B", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            for _ in range(2):
                self.assertEqual(job.stdout.readline(), "here\n")
            job.send_signal(signal.SIGINT)
            out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 130, err)
        self.assertEqual(out.count("finally\n"), 2, err)
        self.assertEqual(out.count("the group is lost: "), 2, err)
        self.assertNotIn("SIGKILL", err)

    def test_a_fork_a_dropped_group_and_numbers_that_are_too_large(self):
        self.expect_done("fork", FORK, 2)

    def test_alone_it_is_a_world_of_one(self):
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        script = "import ddp_runtime; print(ddp_runtime.init_process_group().size, ddp_runtime.version())"
        result = subprocess.run([sys.executable, "-B", "-c", script], env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
        self.assertRegex(result.stdout, r"^1 \d+\.\d+\.\d+\n$")

    def test_what_cannot_be_meant_is_refused(self):
        script = """
            from array import array
            import ddp_runtime
            group = ddp_runtime.init_process_group()
            def refused(kind, call):
                try:
                    call()
                except kind as error:
                    return str(error)
                raise AssertionError("it was taken")
            assert "there is no operation 'mean'" in refused(ValueError, lambda: group.all_reduce(array("f", [1]), "mean"))
            assert "read-only" in refused(ValueError, lambda: group.all_reduce(b"12"))
            assert "cannot be sent" in refused(ValueError, lambda: group.all_reduce(array("u", "ab")))
            refused(TypeError, lambda: group.all_reduce(3.0))
            assert "no backend 'mpi'" in refused(ddp_runtime.GroupError, lambda: ddp_runtime.init_process_group("mpi"))
            assert "option timeout" in refused(ddp_runtime.GroupError, lambda: ddp_runtime.init_process_group(timeout=-1))
            print("done")
        """
        self.expect_done("refused", script, 1)


if __name__ == "__main__":
    unittest.main()
