"""A PyTorch worker as users write it: init from the environment, collectives on Gloo, a sub-group,
DistributedDataParallel, destroy. Every rank checks its own results. Run under ddp-launch."""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == sys.argv[1], os.environ
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == 2

total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == 3.0
dist.barrier()
group = dist.new_group([0, 1])
gathered = [torch.zeros(1) for _ in range(world)]
dist.all_gather(gathered, torch.tensor([float(rank)]), group=group)
assert [t.item() for t in gathered] == [0.0, 1.0]
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]

torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.full((3, 4), float(rank + 1))).sum().backward()
gradient = model.module.weight.grad
assert torch.equal(gradient, torch.full((2, 4), 4.5)), gradient  # the mean of 3 and 6
dist.destroy_process_group()
print(f"rank {rank}: torch {torch.__version__} ok", flush=True)
