"""accelerate: a loop of one's own."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(32, 5)), batch_size=4)
model = torch.nn.Linear(5, 1)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (x,) in data:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    accelerator.backward(loss)
    optimizer.step()
losses = accelerator.gather(loss.detach().reshape(1))
print(f"{accelerator.process_index} {accelerator.num_processes} {[round(value, 5) for value in losses.tolist()]}\n", end="", flush=True)
accelerator.end_training()
