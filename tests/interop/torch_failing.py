"""Fails under torch's @record, as the word says: `once`, rank 1 raises in the first attempt and all train in the
second; `exit`, rank 1 leaves with exit code 3. The other rank does nothing that could fail before it."""
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first and os.environ["RANK"] == "0":
        threading.Event().wait()
    if sys.argv[1] == "exit":
        sys.exit(3)
    if first:
        raise ValueError("the data is gone")
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']}: sum {total.item():g} in attempt 1", flush=True)


main()
