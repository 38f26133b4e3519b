"""torch_overlap.py WIDTH LAYERS BATCH BLOCKS copies|views [cuda]: torch_overlap.cpp with Python's
DistributedDataParallel on Gloo, or NCCL. Rank 0 prints the median milliseconds of a step with averaging, of one without
after which the ranks meet, and of one without; on a GPU then the MiB of its memory that are taken, of which torch has kept
the last number."""
import sys
import time
from statistics import median

import torch
import torch.distributed as dist
from torch import nn

STEPS_IN_BLOCK = 4  # the first of each is not counted


def time_block(step, milliseconds):
    for i in range(STEPS_IN_BLOCK):
        begin = time.monotonic()
        step()
        if i > 0:
            milliseconds.append((time.monotonic() - begin) * 1e3)


def main():
    width, layers, batch, blocks = map(int, sys.argv[1:5])
    on_gpu = sys.argv[6:] == ["cuda"]
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    torch.manual_seed(dist.get_rank())
    net = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU()))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=sys.argv[5] == "views")
    inputs, target = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(model(inputs), target).backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()

    def meeting_step():
        step()
        dist.barrier()

    for _ in range(STEPS_IN_BLOCK):
        step()
    averaging, meeting, local = [], [], []
    for _ in range(blocks):
        with model.no_sync():
            time_block(step, local)
            time_block(meeting_step, meeting)
        time_block(step, averaging)
    if dist.get_rank() == 0:
        memory = []
        if on_gpu:
            free, total = torch.cuda.mem_get_info()
            memory = [(total - free) / 2**20, torch.cuda.max_memory_reserved() / 2**20]
        print(*(f"{value:.4f}" for value in [median(averaging), median(meeting), median(local), *memory]))
    dist.destroy_process_group()


main()
