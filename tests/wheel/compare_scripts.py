"""compare_scripts.py [NAME...]: twelve programs, the same to the letter, under torchrun and under ddp-launch, both of the environment whose
Python runs this: what the ranks print, whether the job succeeds, that nobody is left. Prints a table, and what of a program's
packages is missing here; ends with 1 when two differ."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
BIN = pathlib.Path(sys.executable).parent
LAUNCHERS = {"torchrun": BIN / "torchrun", "ddp-launch": BIN / "ddp-launch"}
PATIENCE = 180

# Of each: what comes after --nproc-per-node=2, and the packages that it needs beside PyTorch. They write each line at once, as torchrun
# mixes lines that two ranks write in pieces.
PROGRAMS = {
    "train_ddp": (["train_ddp.py"], []),
    "elastic_ddp": (["elastic_ddp.py"], []),
    "fsdp": (["fsdp.py"], []),
    "objects": (["objects.py"], []),
    "trainer": (["trainer.py"], ["transformers", "accelerate"]),
    "accelerated": (["accelerated.py"], ["accelerate"]),
    "lightning_fit": (["lightning_fit.py"], ["lightning"]),
    "a C++ worker": (["--no-python", str(BIN / "ddp-bench"), "all_reduce", "--max-bytes", "1K"], []),
    "failing": (["failing.py"], []),
    "restart": (["--max-restarts=1", "restart.py"], []),
    "hang": (["hang.py"], []),
    "a module": (["-m", "package.worker", "--word", "x y"], []),
}
FAIL = {"failing", "hang"}


def lines_of(name, text):
    lines = text.splitlines()
    if name == "a C++ worker":  # its other lines are times
        return [line for line in lines if "Out of bounds" in line]
    # PyTorch 2.8's Gloo says so on stdout, in pieces.
    lines = [line for line in lines if not re.search(r"\[Gloo\]|is connected to|peer ranks|^[\d :]*$", line)]
    return sorted(re.sub(r"'\w+_(runtime|per_second)': '?[^',}]*'?, ", "", line) for line in lines)


def run(name, launcher):
    """What the ranks have printed, whether the job succeeded, seconds, and what went on stderr."""
    words, _ = PROGRAMS[name]
    words = [str(SCRIPTS / word) if word.endswith(".py") else word for word in words]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as error, subprocess.Popen(
            [str(launcher), "--nproc-per-node=2", *words], stdout=subprocess.PIPE, stderr=error, text=True, env=environment,
            start_new_session=True) as job:
        pids, early = [], []
        if name == "hang":
            for line in job.stdout:
                early.append(line)
                pids += [int(pid) for pid in re.findall(r" pid (\d+)", line)]
                if len(pids) == 2:
                    break
            time.sleep(1)
            job.send_signal(signal.SIGINT)
        try:
            out, _ = job.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            out = job.communicate()[0] + "\nstill there after %d s" % PATIENCE
        seconds = time.monotonic() - start
        error.seek(0)
        printed = lines_of(name, re.sub(r" pid \d+", "", "".join(early) + out))
        printed += [f"rank {rank} is left" for rank, pid in enumerate(pids) if os.path.exists(f"/proc/{pid}")]
        return printed, job.returncode == 0, seconds, error.read()


def missing(packages):
    for package in packages:
        if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True).returncode != 0:
            return package
    return None


def main():
    different = 0
    for name in sys.argv[1:] or PROGRAMS:
        lacks = missing(PROGRAMS[name][1])
        if lacks:
            print(f"{name:14} not here: {lacks}", flush=True)
            continue
        theirs, ours = (run(name, launcher) for launcher in LAUNCHERS.values())
        if theirs[:2] == ours[:2] and theirs[0] and ours[1] == (name not in FAIL):
            ended = "succeeds" if ours[1] else "fails"
            print(f"{name:14} the same, {len(ours[0])} lines, {ended}: {theirs[2]:5.1f} s by torchrun, {ours[2]:5.1f} s by ddp-launch", flush=True)
            continue
        different += 1
        print(f"{name:14} DIFFERENT", flush=True)
        for launcher, (printed, succeeded, _, error) in zip(LAUNCHERS, (theirs, ours)):
            print(f"--- {launcher}: {'succeeded' if succeeded else 'failed'}", *printed, "- its stderr:", error[-3000:], sep="\n", flush=True)
    return 1 if different else 0


sys.exit(main())
