"""What else DistributedDataParallel has: no_sync, a join of uneven inputs, state from a checkpoint; under TorchElastic's record."""
import io

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


@record
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    optimizer = torch.optim.Adam(model.parameters())
    with model.join():
        for step in range(2 + rank):
            if step == 0:
                with model.no_sync():
                    model(torch.ones(2, 4)).sum().backward()
            model(torch.full((2, 4), float(step))).square().sum().backward()
            optimizer.step()
    file = io.BytesIO()
    torch.save(model.module.state_dict(), file)
    file.seek(0)
    model.module.load_state_dict(torch.load(file))
    print(f"rank {rank}: {sum(p.abs().sum().item() for p in model.parameters()):.6f}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
