#!/usr/bin/env python3
"""Writes golden_shards.txt: what real PyTorch's DistributedSampler, RandomSampler and randperm give.

Run where torch is installed, then commit the result. Cases that depend on the version carry an era
(ddp::RandpermEra) and come from two installations, one from before 2025 and a newer one, which
also checks that all other cases are the same there:
    python3 make_golden_shards.py golden_shards.txt [what to call this torch]
    newer/python make_golden_shards.py --append golden_shards.txt [what to call this torch]
The C++ tests compare with the file and never need torch. Needs 4 GiB of memory.
"""
import sys

import torch
from torch.utils.data import DistributedSampler, RandomSampler

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


def random(n, seed, replacement, num_samples):
    generator = torch.Generator()
    generator.manual_seed(seed)
    indices = list(RandomSampler(range(n), bool(replacement), num_samples or None, generator))
    return f"{n} {seed} {replacement} {num_samples} {len(indices)} {describe(indices)}"


def era():
    generator = torch.Generator().manual_seed(42)
    first = torch.randint(2**28, (1,), generator=generator).item()
    return {266460262: "before_2025", 199900595: "since_2025"}[first]


def places(n, seed, stride):
    indices = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[::stride].tolist()
    return f"places {era()} {n} {seed} {stride} {len(indices)} {describe(indices)}"


def cases():
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
    for world, rank, seed in ((2, 1, -1), (3, 0, largest), (8, 7, 0)):
        for drop_last in (False, True):
            lines.append(shard(3000001, world, rank, seed, 3, True, drop_last))
    for n in (0, 1, 2, 3, 624, 625, 2**16, 2**20 + 7):  # 624: the size of MT19937's state
        for seed in (0, 42, -1):
            lines.append(permutation(n, seed))
    for n, seed, replacement, num_samples in (
            (1, 0, 0, 0), (10, 42, 0, 0), (1437, -1, 0, 0), (100003, largest, 0, 0),
            (10, 7, 0, 4), (10, 7, 0, 10), (10, 7, 0, 35), (7, 7, 0, 7000),
            (1, 0, 1, 0), (10, 42, 1, 0), (1437, -1, 1, 0), (10, 7, 1, 4), (10, 7, 1, 99),
            (2**28 - 1, 7, 1, 40), (2**32, 7, 1, 40), (2**40 + 3, largest, 1, 40)):
        lines.append("random any " + random(n, seed, replacement, num_samples))
    return lines


def cases_of_the_era():
    lines = [f"random {era()} " + random(n, 7, 1, 40) for n in (2**28, 2**32 - 1, 3 * 10**9)]
    lines += [places(n, 42, 100003) for n in (214748363, 214748364, 230000001)]
    return lines


def main():
    append = sys.argv[1] == "--append"
    path, *version = sys.argv[2:] if append else sys.argv[1:]
    version = version[0] if version else torch.__version__
    lines = cases()
    if append:
        with open(path, encoding="ascii") as file:
            known = set(file.read().splitlines())
        different = [line for line in lines if line not in known]
        if different:
            sys.exit("this torch differs:\n" + "\n".join(different))
        lines = [f"# {era()}, made with torch {version}, which agrees with all cases without an era:"]
    else:
        lines = ["# Made by make_golden_shards.py; cases without an era", f"# with torch {version}",
                 "# shard    n world rank seed epoch shuffle drop_last  length  indices",
                 "# randperm n seed  length  indices",
                 "# random   era n seed replacement num_samples  length  indices",
                 "# places   era n seed stride  length  indices: every stride-th of randperm",
                 "# indices: `all ...`, or `digest` (64-bit FNV-1a of the indices as",
                 "# little-endian u64) and `ends`: the first and the last four.",
                 *lines, f"# {era()}, made with torch {version}:"]
    lines += cases_of_the_era()
    with open(path, "a" if append else "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
