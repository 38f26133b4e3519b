"""The first attempt fails, the second goes through. Only that makes a group: PyTorch's second one at times connects to a rank of the
first, and fails under torchrun."""
import os
import sys
import time

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(f"rank {os.environ['RANK']} attempt {attempt}, at most {os.environ['TORCHELASTIC_MAX_RESTARTS']} more\n", end="", flush=True)
if attempt == 0:
    time.sleep(3)  # the other rank has printed
    sys.exit(3 if os.environ["RANK"] == "0" else time.sleep(600))

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
