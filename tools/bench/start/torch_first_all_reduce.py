"""ddp-first-all-reduce as a PyTorch program, on Gloo."""
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
now = time.monotonic_ns()
assert value.item() == dist.get_world_size()
if len(sys.argv) > 1:
    sys.stdout.write(f"{sys.argv[1]} {now}\n")  # in one piece, whatever the buffering
dist.destroy_process_group()
