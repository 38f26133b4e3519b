"""Trains the digits' network in Python and saves what users of DataParallel save: the wrapper's state_dict, whose names
begin with "module.".  python3 make_digits_data_parallel.py  (made with torch 1.13.1)"""
import csv
import gzip
import os

import torch

folder = os.path.dirname(os.path.abspath(__file__))
with gzip.open(os.path.join(folder, "digits.csv.gz"), "rt") as file:
    rows = torch.tensor([[float(field) for field in row] for row in csv.reader(file)])
train = torch.arange(len(rows)) % 5 != 0
images, labels = rows[:, :64] / 16, rows[:, 64].long()


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 128), torch.nn.Linear(128, 10)])

    def forward(self, x):
        return self.layers[1](torch.relu(self.layers[0](x)))


torch.manual_seed(1)
model = torch.nn.DataParallel(Mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(30):
    for batch in torch.randperm(int(train.sum())).split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[train][batch]), labels[train][batch]).backward()
        optimizer.step()
right = model(images[~train]).argmax(1) == labels[~train]
print(f"accuracy {right.float().mean():.4f}")
torch.save(model.state_dict(), os.path.join(folder, "digits_data_parallel.pth"))
