"""What the CPU collectives must reach against the peers, each judged from the results alone."""

from reporting import judge
from results import MPI

K, M = 1 << 10, 1 << 20
OTHERS = ["reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]


def name_of(size):
    for unit, name in ((M, "MiB"), (K, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def make_measures(results):
    def reduce_ratios(ranks, peer, ours, low=0, high=1 << 60):
        return {name_of(size): results.ratio(("all_reduce", ranks, "float32", size), peer, ours)
                for size in results.sizes("all_reduce", ranks) if low <= size <= high}

    def over_floor(ranks, low):
        return {name_of(size): results.over_floor(("all_reduce", ranks, "float32", size))
                for size in results.sizes("all_reduce", ranks) if size >= low}

    two = "2 ranks, all_reduce"
    measures = [
        judge(f"{two}, user: best MPI / ours, every size", reduce_ratios(2, MPI, "ddp user"), 1,
              strictly=True),
        judge(f"{two}, user: best MPI / ours, from 32 KiB",
              reduce_ratios(2, MPI, "ddp user", 32 * K), 1.5),
        judge(f"{two}, user: Gloo / ours, every size", reduce_ratios(2, "Gloo", "ddp user"), 5),
        judge(f"{two}, shared: best MPI / ours, 32 KiB to 8 MiB",
              reduce_ratios(2, MPI, "ddp shared", 32 * K, 8 * M), 4),
        judge(f"{two}, shared: best MPI / ours, from 64 MiB",
              reduce_ratios(2, MPI, "ddp shared", 64 * M), 3),
        judge(f"{two}, shared: Gloo / ours, every size", reduce_ratios(2, "Gloo", "ddp shared"),
              10),
        judge(f"{two}, shared: ours / floor, from 64 MiB", over_floor(2, 64 * M), at_most=1.25),
    ]
    for ranks in (4, 8):
        many = f"{ranks} ranks, all_reduce"
        middle = reduce_ratios(ranks, MPI, "ddp user", M, M)
        middle |= reduce_ratios(ranks, MPI, "ddp user", 64 * M, 64 * M)
        measures += [
            judge(f"{many}, user: best MPI / ours, every size",
                  reduce_ratios(ranks, MPI, "ddp user"), 1, strictly=True),
            judge(f"{many}, user: best MPI / ours, 1 MiB and 64 MiB", middle, 1.8),
            judge(f"{many}, shared: best MPI / ours, 1 MiB",
                  reduce_ratios(ranks, MPI, "ddp shared", M, M), 3.5),
            judge(f"{many}, shared: best MPI / ours, from 64 MiB",
                  reduce_ratios(ranks, MPI, "ddp shared", 64 * M), 4.5),
            judge(f"{many}, shared: ours / floor, from 64 MiB", over_floor(ranks, 64 * M),
                  at_most=1.5),
        ]
    for ours in ("ddp user", "ddp shared"):
        others = {f"{kind}, {name_of(size)}":
                  results.ratio((kind, 2, "float32", size), MPI, ours)
                  for kind in OTHERS for size in results.sizes(kind, 2)}
        path = ours.split()[1]
        measures.append(judge(f"2 ranks, the other collectives, {path}: best MPI / ours", others, 1))
    for ours in ("ddp user", "ddp shared"):
        halves = {f"{dtype}, {name_of(size)}": results.element_rate(dtype, size, ours)
                  for dtype in ("float16", "bfloat16")
                  for size in results.sizes("all_reduce", 2, dtype)}
        path = ours.split()[1]
        measures.append(judge(f"2 ranks, all_reduce, {path}: elements/s over float32's", halves,
                              1.6))
    return measures
