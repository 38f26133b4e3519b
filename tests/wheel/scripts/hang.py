"""Rank 1 never comes to the barrier."""
import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} pid {os.getpid()}\n", end="", flush=True)
while dist.get_rank() == 1:
    time.sleep(1)
dist.barrier()
