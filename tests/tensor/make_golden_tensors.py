#!/usr/bin/env python3
"""Writes golden_tensors.txt: how real PyTorch cuts, prints and fills tensors.

Run where torch is installed, then commit the result:
    python3 make_golden_tensors.py golden_tensors.txt [what to call this torch]
The C++ tests compare with the file and never need torch.
"""
import random
import sys

import torch

HEAD = """\
# Made by: python3 make_golden_tensors.py golden_tensors.txt
# with torch {version}
# chunk n k  pieces  rows of the first, rows of the last (all between are as the first)
# randn dtype seed n  values
# print dtype shape start step: elements start + step * i; or values ...: each of them
# | what str() gives, without "torch."
"""


def chunk(n, k):
    sizes = [len(piece) for piece in torch.empty(n, dtype=torch.uint8).chunk(k)]
    assert all(size == sizes[0] for size in sizes[:-1])
    return f"chunk {n} {k} {len(sizes)} {sizes[0]} {sizes[-1]}"


def chunks():
    generator = random.Random(7)
    lines = [chunk(n, k) for n, k in ((0, 1), (0, 5), (1, 1), (1, 8), (30, 8), (10, 8), (10, 3))]
    while len(lines) < 1100:
        most = generator.choice((8, 40, 1000, 100000))
        lines.append(chunk(generator.randint(0, most), generator.randint(1, min(most, 5000))))
    return lines


def randn(dtype, seed, n):
    torch.manual_seed(seed)
    values = torch.randn(n, dtype=dtype).double().tolist()
    return f"randn {name(dtype)} {seed} {n} " + " ".join(map(repr, values))


def name(dtype):
    return str(dtype).replace("torch.", "")


def shown(head, tensor):
    return [head] + ["| " + line for line in str(tensor).split("\n")]


def use_short_names():
    """dtype=float64, not dtype=torch.float64: before lines are broken."""
    add_suffixes = torch._tensor_str._add_suffixes

    def add_short(text, suffixes, *rest, **options):
        short = [word.replace("torch.", "") for word in suffixes]
        return add_suffixes(text, short, *rest, **options)

    torch._tensor_str._add_suffixes = add_short


def text_of(shape):
    return ",".join(map(str, shape)) if shape else "-"


def ramp(dtype, shape, start, step):
    count = torch.Size(shape).numel()
    values = torch.tensor([start + step * i for i in range(count)], dtype=torch.float64)
    tensor = values.to(dtype).view(shape)
    return shown(f"print {name(dtype)} {text_of(shape)} ramp {start!r} {step!r}", tensor)


def listed(dtype, shape, values):
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype).view(shape)
    words = " ".join(repr(float(value)) for value in values)
    return shown(f"print {name(dtype)} {text_of(shape)} values {words}", tensor)


def prints():
    inf, nan = float("inf"), float("nan")
    lines = []
    floats = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    wholes = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
    for dtype in floats + wholes:
        lines += ramp(dtype, (2, 3), 0, 1) + ramp(dtype, (), 3, 1) + ramp(dtype, (0,), 0, 1)
        lines += ramp(dtype, (2, 0), 0, 1) + ramp(dtype, (3, 2, 2), 1, 9)
    for dtype in floats:
        lines += ramp(dtype, (2, 3), -0.25, 0.1) + ramp(dtype, (4,), 0.001, 12.5)
        lines += ramp(dtype, (30,), -1.5, 0.1) + ramp(dtype, (2, 30), 0, 1000)
        lines += listed(dtype, (3,), (0, 0, 0)) + listed(dtype, (2,), (-0.0, 0.5))
        lines += listed(dtype, (4,), (inf, -inf, nan, 1)) + listed(dtype, (3,), (nan, inf, 0))
        lines += listed(dtype, (4,), (inf, nan, 0.5, -1000)) + listed(dtype, (2,), (1e-4, 1e-5))
        lines += listed(dtype, (3,), (inf, 1e-5, 1)) + listed(dtype, (), (-2.5,))
    for value in (1e8, 1.5e8, 123456789, 99999999, 1e300, 1e-300):
        lines += listed(torch.float64, (2,), (value, value)) + listed(torch.float64, (), (value,))
    large = ((1000,), (1001,), (7, 150), (4, 6, 50), (2000, 1), (1, 1100), (3, 500), (8, 8, 8, 8))
    for shape in large:
        lines += ramp(torch.float32, shape, 0, 0.5) + ramp(torch.int64, shape, -5, 3)
    lines += ramp(torch.float64, (20,), 0.5, 100) + ramp(torch.int32, (200,), -100, 1)
    lines += listed(torch.bool, (2, 2), (1, 0, 0, 2)) + listed(torch.bool, (), (0,))
    lines += ramp(torch.bool, (40,), -2, 1) + ramp(torch.bool, (0, 3), 0, 1)
    lines += listed(torch.int64, (3,), (-(2.0**53), 0, 7)) + ramp(torch.float64, (1, 1, 1), 0.5, 0)
    for count in range(5, 14):  # where the dtype comes to stand in a line of its own
        lines += ramp(torch.float64, (count,), 0.125, 1)
    return lines


def main():
    use_short_names()
    lines = chunks()
    for dtype in (torch.float32, torch.float64):
        for seed in (0, 42, 2**32 + 5, 2**63 - 1):
            for n in (1, 2, 15, 16, 17, 31, 100):
                lines.append(randn(dtype, seed, n))
    lines += prints()
    version = sys.argv[2] if len(sys.argv) > 2 else torch.__version__
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(HEAD.format(version=version) + "\n".join(lines) + "\n")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
