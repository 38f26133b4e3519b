"""The same cases as data_speed.cpp, by PyTorch, in the same lines:
   torch_data.py sampler SAMPLES RANKS | loader WORKERS EPOCHS FORM"""

import sys
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler

ROWS, BATCH_SIZE, COLUMNS = 60_000, 30, 5


def peak_kib():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0])


class Rows(Dataset):
    """As the tutorials write it. An index gives a sample, a list of them a whole batch."""

    def __init__(self):
        self.rows = torch.randn(ROWS, COLUMNS)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def digest_of(indices):
    """The sum of place * index modulo 2^64, as torch's int64 wraps around."""
    places = torch.arange(1, len(indices) + 1)
    return int((places * torch.tensor(indices)).sum()) % 2**64


def sampler(samples, ranks):
    before = peak_kib()
    start = time.perf_counter()
    indices = list(DistributedSampler(range(samples), ranks, 0))
    seconds = time.perf_counter() - start
    grown = peak_kib() - before
    print(seconds, grown, len(indices), digest_of(indices))


def make_loader(workers, form):
    rows = Rows()
    if form == "tensors":
        return DataLoader(rows, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)
    # torch's way to whole batches, without its collate; __getitems__ is of 2.0 and later.
    indices = BatchSampler(RandomSampler(rows), BATCH_SIZE, drop_last=False)
    return DataLoader(rows, batch_size=None, sampler=indices, num_workers=workers)


def loader(workers, epochs, form):
    batches = make_loader(workers, form)
    start = time.perf_counter()
    elements = sum(batch.numel() for _ in range(epochs) for batch in batches)
    print(elements / COLUMNS / (time.perf_counter() - start), elements)


if __name__ == "__main__":
    torch.set_num_threads(1)
    case, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if case == "sampler":
        sampler(first, second)
    else:
        loader(first, second, sys.argv[4])
