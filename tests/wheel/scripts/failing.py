"""A rank that fails while the other waits for it."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} begins\n", end="", flush=True)
if os.environ["RANK"] == "1":
    raise RuntimeError("rank 1 has had enough")
dist.barrier()
