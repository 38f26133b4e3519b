"""The pods of examples/kubernetes/indexed_job.yaml, two of them, as containers of podman: with the manifest's variables,
options and mounts, each with a network of its own on one bridge. The first one's name becomes known late.

two_pods_test.py DDP_LAUNCH. Needs root and podman. All of it is in namespaces of its own, and nothing is left."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import yaml
except ImportError as error:
    print(f"SKIPPED: {error}: tools/install-deps.sh --interop installs it")
    sys.exit(77)

MANIFEST = pathlib.Path(__file__).parent.parent.parent / "examples" / "kubernetes" / "indexed_job.yaml"
HEAD_ADDRESS = "10.88.0.10"
PROGRAMS = ["bash", "hostname"]


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def add(file, root, target):
    """A program or a library, and at the places where they are the libraries that it needs."""
    listed = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
    for library in (word for word in listed.split() if word.startswith("/")):
        copy(library, root / library.lstrip("/"))
    copy(file, root / target)


def copy(file, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(os.path.realpath(file), target)


def make_root(launcher, work):
    root = work / "root"
    for folder in ("proc", "sys", "dev", "tmp", "etc"):
        (root / folder).mkdir(parents=True)
    for program in PROGRAMS:
        add(shutil.which(program), root, f"usr/bin/{program}")
    add(launcher, root, "usr/bin/ddp-launch")
    for library in ("libssl.so.3", "libcrypto.so.3"):  # loaded for the token
        add(f"/usr/lib/x86_64-linux-gnu/{library}", root, f"usr/lib/x86_64-linux-gnu/{library}")
    return root


class Podman:
    def __init__(self, work):
        self.root = None
        self.command = ["podman", "--root", str(work / "storage"), "--runroot", str(work / "run"),
                        "--cgroup-manager=cgroupfs", "--events-backend=none"]
        runc = shutil.which("runc", path="/usr/sbin:" + os.environ["PATH"])
        if runc:
            self.command += ["--runtime", runc]

    def call(self, *words, check=True):
        run = subprocess.run([*self.command, *words], capture_output=True, text=True, timeout=60)
        if check and run.returncode != 0:
            sys.exit(f"FAILED: podman {' '.join(words)}: {run.stderr}")
        return run

    def start(self, name, options, words):
        self.call("run", "--detach", "--name", name, "--network=bridge", "--ulimit=nofile=1024:1024",
                  "--ulimit=nproc=1000:1000", *options, "--rootfs", str(self.root), *words)


def pod_of(manifest, token):
    """What podman and ddp-launch are told, as the manifest says it."""
    job = next(one for one in yaml.safe_load_all(manifest.read_text()) if one["kind"] == "Job")
    container = job["spec"]["template"]["spec"]["containers"][0]
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    given |= {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2"}  # of two pods, without GPUs
    options = [f"--env={name}={value}" for name, value in given.items()]
    options.append(f"--volume={token}:{given['DDP_JOB_TOKEN_FILE']}:ro")
    launcher = container["command"][:container["command"].index("--") + 1]
    worker = ["/usr/bin/bash", "-c", 'echo "rank $RANK of $WORLD_SIZE on $(hostname)"']
    return given["PET_MASTER_ADDR"], options, ["/usr/bin/" + launcher[0], *launcher[1:], *worker]


def run_pods(podman, head, options, words):
    def start(index, more):
        podman.start(f"train-{index}", [f"--hostname=train-{index}", f"--env=JOB_COMPLETION_INDEX={index}", *options,
                                        *more], words)

    start(1, [])
    deadline = time.monotonic() + 30  # until it has looked for the first pod in vain
    while f"waits for the coordinator at {head}:29500" not in podman.call("logs", "train-1").stderr:
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: the second pod does not wait: {podman.call('logs', 'train-1').stderr}")
        time.sleep(0.2)
    start(0, [f"--ip={HEAD_ADDRESS}", f"--add-host={head}:{HEAD_ADDRESS}"])
    podman.call("exec", "train-1", "/usr/bin/bash", "-c", f"echo {HEAD_ADDRESS} {head} >>/etc/hosts")
    lines = []
    for name in ("train-0", "train-1"):
        code = podman.call("wait", name).stdout.strip()
        logs = podman.call("logs", name)
        if code != "0":
            sys.exit(f"FAILED: {name} ended with {code}: {logs.stderr}")
        lines += logs.stdout.splitlines()
        print(logs.stderr, end="")
    wanted = [f"rank {rank} of 4 on train-{rank // 2}" for rank in range(4)]
    if sorted(lines) != wanted:
        sys.exit(f"FAILED: the ranks said {lines}, not {wanted}")
    print("\n".join(wanted))


def main(launcher):
    work = pathlib.Path(tempfile.mkdtemp())
    podman = Podman(work)
    try:
        podman.root = make_root(launcher, work)
        tried = podman.call("run", "--rm", "--network=bridge", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000",
                            "--rootfs", str(podman.root), "/usr/bin/hostname", check=False)
        if tried.returncode != 0:
            skip(f"podman does not run here: {tried.stderr.strip()}")
        token = work / "token"
        token.write_text("0123456789abcdef" * 4)
        token.chmod(0o400)
        run_pods(podman, *pod_of(MANIFEST, token))
    finally:
        podman.call("rm", "--force", "--all", "--time=0", check=False)
        subprocess.run(["umount", "--recursive", "--lazy", str(work / "storage")], capture_output=True)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("podman's bridge needs root")
    for needed in ("podman", "unshare"):
        if not shutil.which(needed):
            skip(f"{needed} is not installed: tools/install-deps.sh --soak installs it")
    if "--inside" not in sys.argv:  # podman's bridge and mounts end with these namespaces
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable,
                              *sys.argv, "--inside"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.makedirs("/var/lib/cni", exist_ok=True)  # which addresses are given out
    subprocess.run(["mount", "-t", "tmpfs", "none", "/var/lib/cni"], check=True)
    main(sys.argv[1])
