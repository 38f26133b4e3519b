"""FSDP, on processors: parameters in parts, gathered for a forward."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FullyShardedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)),
                                 device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.full((4, 8), float(step + dist.get_rank()))).square().mean()
    loss.backward()
    optimizer.step()
    print(f"rank {dist.get_rank()}: step {step}, loss {loss.item():.5f}\n", end="", flush=True)
dist.destroy_process_group()
