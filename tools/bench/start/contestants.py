"""Who starts what: the cases of start.sh and the command of each contestant."""
import os
from dataclasses import dataclass, field

OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
START_RANKS = [1, 8, 32]
FIRST_RANKS = [2, 4, 8, 16]
# How far a job of ddp's goes, each further than the one before: where the time of the first
# all-reduce goes.
STAGES = ["exit", "main", "group"]
HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Entry:
    command: list
    environment: dict = field(default_factory=dict)


def groups(args, number):
    """One round: (case, ranks, labels). PyTorch, which takes seconds, runs in the first few."""
    torch = ["torchrun"] if args.torch and number < args.torch_rounds else []
    result = [("start", ranks, ["ddp", "floor", "MPICH", "Open MPI"] +
               (torch if ranks in (1, 8) else [])) for ranks in START_RANKS]
    return result + [("first", ranks, ["ddp", *STAGES, "floor", "MPICH", "Open MPI"] +
                      (torch if ranks == 2 else [])) for ranks in FIRST_RANKS]


def entry(case, label, ranks, args):
    """`case`: "first" all-reduces, the others run /bin/true."""
    first = case == "first"
    drivers, n = args.drivers, str(ranks)
    torchrun = [args.torch, os.path.join(HERE, "torchrun.py"), "--standalone",
                "--monitor_interval", "0.1", f"--nproc_per_node={n}"]
    true = "/bin/true"
    if label in STAGES:
        worker = [f"{drivers}/meeting_floor", "exit"] if label == "exit" else \
            [f"{args.bin}/ddp-first-all-reduce", f"--until={label}"]
        return Entry([f"{args.bin}/ddp-launch", f"--nproc_per_node={n}", *worker])
    table = {
        "ddp": Entry([f"{args.bin}/ddp-launch", f"--nproc_per_node={n}",
                      f"{args.bin}/ddp-first-all-reduce" if first else true]),
        "floor": Entry([f"{drivers}/meeting_floor", n] if first
                       else [f"{drivers}/spawn_floor", n, true]),
        "MPICH": Entry(["mpiexec.hydra", "-n", n, f"{drivers}/mpich_first" if first else true]),
        "Open MPI": Entry(["mpirun.openmpi", "-n", n, "--oversubscribe",
                           f"{drivers}/openmpi_first" if first else true], OPEN_MPI_AS_ROOT),
        "torchrun": Entry(torchrun + ([os.path.join(HERE, "torch_first_all_reduce.py")] if first
                                      else ["--no_python", true]), {"OMP_NUM_THREADS": "1"}),
    }
    return table[label]
