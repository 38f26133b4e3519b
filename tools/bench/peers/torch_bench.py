"""The PyTorch peer of ddp-bench: torch.distributed's Gloo backend, timed as bench/method.hpp says.
Started as ranks by ddp-launch; prints the same lines of JSON as the other drivers.

    torch_bench.py COLLECTIVE --bytes A,B,... [--iters N|auto] [--warmup N] [--budget SECONDS]
"""
import argparse
import json
import math
import time

import torch
import torch.distributed as dist

LARGE = 16 << 20


def calls(kind, elements, rank, ranks):
    """The input that is rewritten, and the call."""
    part = max(1, elements // ranks)
    if kind == "all_reduce":
        data = torch.empty(elements)
        return data, elements, lambda: dist.all_reduce(data)
    if kind == "broadcast":
        data = torch.empty(elements)
        return data, elements, lambda: dist.broadcast(data, 0)
    if kind == "all_gather":
        data = torch.empty(part)
        parts = [torch.empty(part) for _ in range(ranks)]
        return data, part * ranks, lambda: dist.all_gather(parts, data)
    raise SystemExit(f"torch_bench: {kind} is not measured with PyTorch")


def measure(kind, size, iters, warmup, budget, rank, ranks):
    data, elements, call = calls(kind, size // 4, rank, ranks)
    pattern = torch.tensor([1.0 + (7 * i + 3 * rank) % 4 for i in range(4099)])
    source = pattern.repeat(data.numel() // 4099 + 1)[: data.numel()]

    def once():
        data.copy_(source)
        dist.barrier()
        start = time.perf_counter()
        call()
        taken = 1e6 * (time.perf_counter() - start)
        dist.barrier()
        return taken

    for _ in range(warmup or (5 if size < LARGE else 2)):
        start = time.perf_counter()
        once()
        each = time.perf_counter() - start
    least = 7 if size < LARGE else 5
    number = torch.tensor(iters or min(20000, max(least, int(budget / each))))
    dist.broadcast(number, 0)
    times = torch.tensor([once() for _ in range(int(number))], dtype=torch.float64)
    dist.all_reduce(times)
    times = sorted(float(t) / ranks for t in times)
    middle = len(times) // 2
    median = times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2
    wrong = 0
    if kind == "all_reduce":
        want = sum(torch.tensor([1.0 + (7 * i + 3 * r) % 4 for i in range(4099)]) for r in range(ranks))
        want = want.repeat(data.numel() // 4099 + 1)[: data.numel()]
        wrong = int((data != want).sum())
    return elements * 4, median, times[math.ceil(0.99 * len(times)) - 1], wrong, len(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("collective")
    parser.add_argument("--bytes", required=True)
    parser.add_argument("--iters", default="auto")
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--budget", type=float, default=0.3)
    parser.add_argument("--label", default="torch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    iters = 0 if options.iters == "auto" else int(options.iters)
    for size in map(int, options.bytes.split(",")):
        size, median, p99, wrong, count = measure(
            options.collective, size, iters, options.warmup, options.budget, rank, ranks)
        algbw = size / median / 1e3
        factor = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks}
        if rank == 0:
            print(json.dumps({
                "collective": options.collective, "backend": options.label, "ranks": ranks,
                "path": "user", "dtype": "float32",
                "op": "sum" if options.collective == "all_reduce" else "none", "bytes": size,
                "time_us": median, "p99_us": p99, "algbw_gbs": algbw,
                "busbw_gbs": algbw * factor.get(options.collective, 1), "wrong": wrong,
                "iterations": count}), flush=True)
    dist.destroy_process_group()


main()
