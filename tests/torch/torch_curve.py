"""torch_curve.py DTYPE [cuda]: the run of train_curve.cpp with Python's DistributedDataParallel on Gloo, or NCCL.
Run under ddp-launch.
torch_curve.py compare FILE FILE: the lines of both, where every loss may differ by 1e-5 of itself."""
import sys

STEPS, BATCH, RANKS = 50, 8, 2


def compare(*paths):
    curves = []
    for path in paths:
        with open(path) as file:
            words = [line.split() for line in file]
        curves.append({(int(w[1]), int(w[3])): float(w[5]) for w in words})
        assert len(curves[-1]) == STEPS * RANKS, f"{path}: {len(curves[-1])} losses"
    worst = max((abs(curves[0][key] - curves[1][key]) / abs(curves[1][key]), key) for key in curves[1])
    assert curves[0][STEPS - 1, 0] < curves[0][0, 0] / 2, "it did not learn"
    print("largest relative difference", *worst)
    return worst[0] <= 1e-5


def train(type_name, on_gpu):
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    dtype = getattr(torch, type_name)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 32), nn.Tanh(),
                        nn.Linear(32, 10)).to(dtype)
    with torch.no_grad():
        for number, value in enumerate(net.parameters()):
            counts = torch.arange(value.numel()) * 7919 + number * 104729
            value.copy_(((counts % 1000 - 500).double() / 5000).view(value.shape))
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    for step in range(STEPS):
        first = (step * ranks + rank) * BATCH
        rows = torch.arange(first, first + BATCH)
        pixels = rows.view(BATCH, 1) * 31 + torch.arange(64) * 17
        images = (pixels % 97).to(dtype).view(BATCH, 1, 8, 8) / 97
        labels = (rows * rows + rows * 3) % 10
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} rank {rank} loss {loss.item():.17g}", flush=True)
    dist.destroy_process_group()


if sys.argv[1] == "compare":
    sys.exit(0 if compare(*sys.argv[2:]) else 1)
train(sys.argv[1], sys.argv[2:] == ["cuda"])
