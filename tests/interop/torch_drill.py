"""torch_drill.py FAULT RANK STEP: a script for torchrun that trains with DistributedDataParallel, and goes wrong once.

At that step that rank leaves out a call (missing), calls twice (extra), in another order (reordered), something else
(operation, dtype, count, root), stops itself (stop), computes or sleeps for ever (loop, sleep), puts itself into a cgroup that is
frozen then (freeze; the folder is the fourth word), or into one that has too little memory (oom), dies (death), or takes twice as
long from then on (slow), in steps that take a while."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fault, at_rank, at_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values = torch.ones(16)


def mean_loss(loss):
    dist.all_reduce(loss)


def share_schedule():
    dist.broadcast(values, 0)


def load_batch():
    if goes_wrong("sleep"):
        time.sleep(3600)
    while goes_wrong("loop"):
        pass
    if fault == "slow":
        time.sleep(0.04 if rank == at_rank and step > at_step else 0.02)
    return torch.randn(4, 8)


def goes_wrong(how):
    return how == fault and rank == at_rank and step == at_step


for step in range(2000):
    time.sleep(0.001)
    loss = model(load_batch()).square().mean()
    loss.backward()
    optimizer.step()
    if goes_wrong("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if goes_wrong("death"):
        os.kill(os.getpid(), signal.SIGKILL)
    if goes_wrong("freeze") or goes_wrong("oom"):
        with open(sys.argv[4] + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    if goes_wrong("oom"):
        too_much = torch.ones(1 << 28)
    if goes_wrong("freeze"):
        old = os.path.exists(sys.argv[4] + "/freezer.state")
        with open(sys.argv[4] + ("/freezer.state" if old else "/cgroup.freeze"), "w") as file:
            file.write("FROZEN" if old else "1")
        time.sleep(1)
    if goes_wrong("reordered"):
        share_schedule()
    if goes_wrong("operation"):
        dist.barrier()
    elif goes_wrong("dtype"):
        dist.all_reduce(torch.ones(1, dtype=torch.float64))
    elif goes_wrong("count"):
        dist.all_reduce(torch.ones(100000))
    elif not goes_wrong("missing"):
        mean_loss(loss.detach().clone())
    if goes_wrong("extra"):
        dist.all_gather([torch.empty(1) for _ in range(dist.get_world_size())], torch.ones(1))
    if goes_wrong("root"):
        dist.broadcast(values, 1 + at_rank % 2)
    elif not goes_wrong("reordered"):
        share_schedule()
print("done")
