#!/usr/bin/python3 -u
"""A training script as PyTorch's tutorials write it; nothing in it knows of ddp. What it prints is the same
under torchrun and under ddp-launch."""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME",
             "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "OMP_NUM_THREADS")
    print(f"{rank}:", *(f"{name}={os.environ[name]}" for name in names))
    print(f"{rank}: elastic {dist.is_torchelastic_launched()} words {args.words}")

    torch.manual_seed(5)
    inputs = torch.randn(24, 3)
    data = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5]]))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"{rank}: epoch {epoch} loss {loss.item():.6f}")
    weights = [round(w, 6) for w in model.module.weight.flatten().tolist()]
    print(f"{rank}: weights {weights}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
