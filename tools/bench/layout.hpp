// The collectives as they are measured: how many elements each rank gives and gets, what must be
// in the output, and nccl-tests' bandwidth factors. Shared by ddp-bench and the peers' drivers, so
// that all move the same bytes; no dependency but the standard library.
//
// `bytes` of a row is nccl-tests' S: of the tensor for all_reduce, reduce, broadcast, send_recv;
// of all parts together for the others. Element i of rank r's input is element i of r's sequence;
// a sequence repeats a pattern of a prime length, and starts elsewhere in each iteration.
#pragma once

#include "bench/pattern.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ddp::bench {

enum class Kind : std::uint8_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    gather,
    scatter,
    reduce_scatter,
    all_to_all,
    send_recv,
    barrier,
};

struct KindInfo {
    Kind kind;
    const char* name;
    bool in_parts;  // the larger buffer holds one part a rank
    bool reduces;
    bool has_root;
    bool in_place;  // input and output are the same memory
};

inline constexpr std::array kinds{
    KindInfo{Kind::all_reduce, "all_reduce", false, true, false, true},
    KindInfo{Kind::reduce, "reduce", false, true, true, false},
    KindInfo{Kind::broadcast, "broadcast", false, false, true, true},
    KindInfo{Kind::all_gather, "all_gather", true, false, false, false},
    KindInfo{Kind::gather, "gather", true, false, true, false},
    KindInfo{Kind::scatter, "scatter", true, false, true, false},
    KindInfo{Kind::reduce_scatter, "reduce_scatter", true, true, false, false},
    KindInfo{Kind::all_to_all, "all_to_all", true, false, false, false},
    KindInfo{Kind::send_recv, "send_recv", false, false, false, false},  // a ring, to rank + 1
    KindInfo{Kind::barrier, "barrier", false, false, false, true},
};

inline const KindInfo& info_of(Kind kind) { return kinds[static_cast<std::size_t>(kind)]; }

inline std::optional<Kind> find_kind(std::string_view name) {
    for (const KindInfo& info : kinds) {
        if (name == info.name) return info.kind;
    }
    return std::nullopt;
}

// Bus bandwidth over algorithm bandwidth.
inline double bus_factor(Kind kind, int ranks) {
    const double n = ranks;
    if (kind == Kind::all_reduce) return 2 * (n - 1) / n;
    return info_of(kind).in_parts ? (n - 1) / n : 1;
}

// Elements of one rank's buffers; 0 where a rank has none.
struct Layout {
    std::size_t elements = 0;  // of all, S in elements
    std::size_t part = 0;      // elements / ranks, when in parts
    std::size_t input = 0;
    std::size_t output = 0;
};

inline Layout layout_of(Kind kind, std::size_t elements, int ranks, int rank, int root) {
    Layout layout{elements, 0, elements, elements};
    const auto n = static_cast<std::size_t>(ranks);
    if (info_of(kind).in_parts) {
        layout.part = elements == 0 || elements >= n ? elements / n : 1;
        layout.elements = layout.input = layout.output = layout.part * n;
    }
    const bool at_root = rank == root;
    if (kind == Kind::all_gather || kind == Kind::gather) layout.input = layout.part;
    if (kind == Kind::reduce_scatter || kind == Kind::scatter) layout.output = layout.part;
    if ((kind == Kind::reduce || kind == Kind::gather) && !at_root) layout.output = 0;
    if (kind == Kind::scatter && !at_root) layout.input = 0;
    return layout;
}

// What the output must hold; `of_rank[r]` is r's pattern, `reduced` that of the reduction.
inline std::vector<Stretch> expected_output(Kind kind, const Layout& layout, int rank, int root,
                                            const std::vector<Pattern>& of_rank,
                                            const Pattern& reduced) {
    if (layout.output == 0 || kind == Kind::barrier) return {};
    const auto ranks = of_rank.size();
    const auto me = static_cast<std::size_t>(rank);
    const Pattern* const of_root = &of_rank[static_cast<std::size_t>(root)];
    const bool from_all =
        kind == Kind::all_gather || kind == Kind::gather || kind == Kind::all_to_all;
    if (from_all) {
        std::vector<Stretch> parts;
        const std::size_t first = kind == Kind::all_to_all ? me * layout.part : 0;
        for (const Pattern& pattern : of_rank) parts.push_back({&pattern, first, layout.part});
        return parts;
    }
    if (kind == Kind::scatter) return {{of_root, me * layout.part, layout.part}};
    if (kind == Kind::reduce_scatter) return {{&reduced, me * layout.part, layout.part}};
    if (kind == Kind::broadcast) return {{of_root, 0, layout.output}};
    if (kind == Kind::send_recv) return {{&of_rank[(me + ranks - 1) % ranks], 0, layout.output}};
    return {{&reduced, 0, layout.output}};
}

}  // namespace ddp::bench
