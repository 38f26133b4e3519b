"""What the CPU collectives must reach against the peers, each judged from the results alone."""

from reporting import judge
from results import DEBIAN, PEERS

K, M = 1 << 10, 1 << 20
OTHERS = ["reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
          "send_recv"]


def name_of(size):
    for unit, name in ((M, "MiB"), (K, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def make_measures(results):
    def judge_ratios(text, keys, peer, ours, wanted, **how):
        """keys: {name: key of results}."""
        return judge(text, {name: results.ratio(key, peer, ours) for name, key in keys.items()},
                     wanted, floors={name: results.at_floor(key, peer, ours)
                                     for name, key in keys.items()}, **how)

    def sizes(ranks, low=0, high=1 << 60):
        return {name_of(size): ("all_reduce", ranks, "float32", size)
                for size in results.sizes("all_reduce", ranks) if low <= size <= high}

    def judge_over_floor(text, keys, at_most):
        return judge(text, {name: results.over_floor(key) for name, key in keys.items()},
                     at_most=at_most, floors={name: results.at_best_over_floor(key)
                                              for name, key in keys.items()})

    user, shared = "ddp user", "ddp shared"
    measures = []
    for ranks in (2, 4, 8):
        what = f"{ranks} ranks, all_reduce"
        measures += [
            judge_ratios(f"{what}, user: best peer / ours, below 32 KiB", sizes(ranks, 0, 32 * K - 1),
                         PEERS, user, 1, strictly=True),
            judge_ratios(f"{what}, user: best peer / ours, from 32 KiB", sizes(ranks, 32 * K), PEERS,
                         user, 1.3),
            judge_ratios(f"{what}, shared: best peer / ours, up to 4 KiB", sizes(ranks, 0, 4 * K),
                         PEERS, shared, 1, strictly=True),
        ]
        if ranks == 2:
            measures.append(judge_ratios(f"{what}, shared: best peer / ours, 16 KiB",
                                         sizes(ranks, 16 * K, 16 * K), PEERS, shared, 1.5))
        measures.append(judge_ratios(f"{what}, shared: best peer / ours, from 64 KiB",
                                     sizes(ranks, 64 * K), PEERS, shared, 2.5))
        measures.append(judge_over_floor(f"{what}, shared: ours / floor, from 64 MiB",
                                         sizes(ranks, 64 * M), 1.25 if ranks == 2 else 1.5))
        measures.append(judge(
            f"{what}, 64 MiB: adopted / shared",
            {name: results.ratio(key, "ddp adopted", shared)
             for name, key in sizes(ranks, 64 * M, 64 * M).items()}, at_most=1.1))
    measures += [
        judge_ratios("2 ranks, all_reduce, user: Gloo / ours, every size", sizes(2), "Gloo", user, 5),
        judge_ratios("2 ranks, all_reduce, shared: Gloo / ours, every size", sizes(2), "Gloo",
                     shared, 10),
    ]
    measures += [
        judge_ratios("2 ranks, all_reduce, user: Debian's MPI / ours, from 32 KiB",
                     sizes(2, 32 * K), DEBIAN, user, 1.5),
        judge_ratios("2 ranks, all_reduce, shared: Debian's MPI / ours, 32 KiB to 8 MiB",
                     sizes(2, 32 * K, 8 * M), DEBIAN, shared, 4),
        judge_ratios("2 ranks, all_reduce, shared: Debian's MPI / ours, from 64 MiB",
                     sizes(2, 64 * M), DEBIAN, shared, 3),
    ]
    for ranks in (4, 8):
        what = f"{ranks} ranks, all_reduce"
        measures += [
            judge_ratios(f"{what}, user: Debian's MPI / ours, 1 MiB and 64 MiB",
                         sizes(ranks, M, M) | sizes(ranks, 64 * M, 64 * M), DEBIAN, user, 1.8),
            judge_ratios(f"{what}, shared: Debian's MPI / ours, 1 MiB", sizes(ranks, M, M), DEBIAN,
                         shared, 3.5),
            judge_ratios(f"{what}, shared: Debian's MPI / ours, from 64 MiB", sizes(ranks, 64 * M),
                         DEBIAN, shared, 4.5),
        ]
    others = {f"{kind}, {name_of(size)}": (kind, 2, "float32", size)
              for kind in OTHERS for size in results.sizes(kind, 2)}
    measures += [judge_ratios(f"2 ranks, the other collectives, {ours.split()[1]}: best peer / ours",
                              others, PEERS, ours, 1, strictly=True) for ours in (user, shared)]
    for ours in (user, shared):
        halves = {f"{dtype}, {name_of(size)}": results.element_rate(dtype, size, ours)
                  for dtype in ("float16", "bfloat16")
                  for size in results.sizes("all_reduce", 2, dtype)}
        path = ours.split()[1]
        measures.append(judge(f"2 ranks, all_reduce, {path}: elements/s over float32's", halves,
                              1.6))
    return measures
