#!/usr/bin/env python3
"""Writes golden_shards.txt: what real PyTorch's DistributedSampler and randperm give.

Run where torch is installed, then commit the result:
    python3 make_golden_shards.py golden_shards.txt [what to call this torch]
The C++ tests compare with the file and never need torch.
"""
import sys

import torch
from torch.utils.data import DistributedSampler

SMALL = 64  # up to so many indices are written in full; longer lists as digest, head and tail


def digest(indices):
    """64-bit FNV-1a over the indices as little-endian u64."""
    value = 0xCBF29CE484222325
    for index in indices:
        for byte in int(index).to_bytes(8, "little"):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def describe(indices):
    if len(indices) <= SMALL:
        return "all " + " ".join(map(str, indices))
    ends = [*indices[:4], *indices[-4:]]
    return f"digest {digest(indices):016x} ends " + " ".join(map(str, ends))


def shard(n, world, rank, seed, epoch, shuffle, drop_last):
    sampler = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=shuffle,
                                 seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return (f"shard {n} {world} {rank} {seed} {epoch} {int(shuffle)} {int(drop_last)} "
            f"{len(indices)} {describe(indices)}")


def permutation(n, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    indices = torch.randperm(n, generator=generator).tolist()
    return f"randperm {n} {seed} {len(indices)} {describe(indices)}"


def main():
    largest = 2**63 - 1
    lines = []
    for n in (1, 2, 3, 10, 30, 31):  # also fewer samples than ranks
        for world in (1, 2, 3, 8):
            for drop_last in (False, True):
                lines.append(shard(n, world, world - 1, 0, 0, True, drop_last))
                lines.append(shard(n, world, 0, 7, 2, False, drop_last))
    for epoch in (0, 1, 2, 29):
        for world in (1, 2, 3, 4):
            for drop_last in (False, True):
                lines.append(shard(1437, world, world // 2, 17, epoch, True, drop_last))
    for seed in (-1, -2**62, 2**31, 2**32, 2**32 + 5, largest):
        lines.append(shard(1000, 3, 1, seed, 0, True, False))
        lines.append(shard(5, 8, 6, seed, 0, True, False))
    for seed in (-3, 2**33 - 2):
        lines.append(shard(1000, 3, 2, seed, 5, True, True))
    lines.append(shard(5, 3, 0, largest, 1, True, False))  # seed + epoch passes the end of int64
    for drop_last in (False, True):
        lines.append(shard(1000003, 8, 7, 123, 4, True, drop_last))
        lines.append(shard(1281167, 4, 1, 0, 89, True, drop_last))
    for n in (0, 1, 2, 3, 624, 625, 2**16, 2**20 + 7):  # 624: the size of MT19937's state
        for seed in (0, 42, -1):
            lines.append(permutation(n, seed))

    version = sys.argv[2] if len(sys.argv) > 2 else torch.__version__
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("# Made by: python3 make_golden_shards.py golden_shards.txt\n"
                  f"# with torch {version}\n"
                  "# shard    n world rank seed epoch shuffle drop_last  length  indices\n"
                  "# randperm n seed  length  indices\n"
                  "# indices: `all ...`, or `digest` (64-bit FNV-1a of the indices as\n"
                  "# little-endian u64) and `ends`: the first and the last four.\n")
        out.write("\n".join(lines) + "\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
