"""torch_hang.py: a script for torchrun whose rank 1 never calls what the others wait in."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")


def load_batch():
    time.sleep(600)


for step in range(100):
    if dist.get_rank() == 1 and step == 50:
        load_batch()
    dist.all_reduce(torch.ones(16))
