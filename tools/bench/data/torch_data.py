"""The same cases as data_speed.cpp, by PyTorch, in the same lines:
   torch_data.py sampler SAMPLES RANKS | loader WORKERS EPOCHS"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ROWS, BATCH_SIZE, COLUMNS = 60_000, 30, 5


def peak_kib():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0])


class Rows(Dataset):
    """As the tutorials write it."""

    def __init__(self):
        self.rows = torch.randn(ROWS, COLUMNS)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def sampler(samples, ranks):
    before = peak_kib()
    start = time.perf_counter()
    indices = list(DistributedSampler(range(samples), ranks, 0))
    seconds = time.perf_counter() - start
    print(seconds, peak_kib() - before, len(indices), max(indices))


def loader(workers, epochs):
    batches = DataLoader(Rows(), batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)
    start = time.perf_counter()
    elements = sum(batch.numel() for _ in range(epochs) for batch in batches)
    print(elements / COLUMNS / (time.perf_counter() - start), elements)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"sampler": sampler, "loader": loader}[sys.argv[1]](*map(int, sys.argv[2:]))
