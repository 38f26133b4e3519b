// all_reduce, reduce and reduce_scatter between hosts, in three steps a chunk:
//   1. the ranks of a host add what each of them carries, each subtree by itself, and send each sum
//      to the rank that finishes it;
//   2. that rank adds the sums of all hosts and gives the result to who carries it elsewhere;
//   3. the ranks of a host give each other what they have.
// While a chunk is between hosts, the next one is added.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/slots.hpp"
#include "backends/hierarchical/places.hpp"
#include "backends/hierarchical/staging.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ddp::hierarchical {

class ReductionSchedule {
public:
    // All ranks' calls have been found the same. `factors`: of premul_sum, by rank.
    ReductionSchedule(const Places& places, const backends::Call& call,
                      std::span<const double> factors, Staging& staging);

    void run();

private:
    // A part of what this rank carries, which one rank finishes.
    struct Piece {
        Share share;                       // of what this rank carries
        std::size_t owner = 0;             // the rank that finishes it
        std::vector<std::size_t> helpers;  // by host: who carries it there
    };
    struct Chunk {
        Cut cut;       // of the tensor; reduce_scatter: of each rank's part
        Share region;  // of the tensor that this rank carries; not of reduce_scatter
        std::size_t number = 0;
        bool finished_everywhere = false;  // by each host for itself: one step less
        std::vector<std::size_t> regions;  // by index on this host: how much each rank carries
        std::vector<Piece> pieces;         // that this rank carries
    };

    Chunk plan(const Share& elements) const;
    void plan_columns(Chunk& chunk) const;
    void plan_parts(Chunk& chunk) const;

    std::size_t chunk_elements() const;
    void add_here(Chunk& chunk);
    void add_subtrees(const Chunk& chunk, std::byte* sums);
    void exchange_sums(const Chunk& chunk, const std::byte* sums);
    const std::byte* own_input(const Chunk& chunk);
    const std::byte* pack_parts(const Chunk& chunk);
    void add_subtree(const std::byte* inputs, std::size_t carried, const RankRange& subtree,
                     std::byte* sum);
    void finish_pieces(Chunk& chunk);
    void add_all(const Piece& piece, std::byte* output);
    std::byte* result_of(const Chunk& chunk, const Piece& piece);
    void hand_out(Chunk& chunk);

    std::size_t bytes(std::size_t elements) const { return elements * element_; }
    std::size_t sum_bytes(std::size_t elements) const { return elements * sum_element_; }
    std::size_t carried(const Chunk& chunk) const { return chunk.regions[layout_.my_index()]; }
    void start(gloo::Exchange& exchange);  // of what has been collected

    const Places& places_;
    const HostLayout& layout_;
    const backends::Call& call_;
    std::span<const double> factors_;
    Staging& staging_;
    std::size_t element_;
    DType sum_type_;
    std::size_t sum_element_;
    std::size_t root_;
    gloo::MessageList messages_{gloo::collective_slot};
    // Of the chunks that are between hosts, by number modulo 2.
    std::array<std::optional<gloo::Exchange>, 2> sums_;
    std::array<std::optional<gloo::Exchange>, 2> results_;
    // While a piece is finished: where the sum of each subtree is, by its first rank.
    std::vector<std::byte*> sum_at_;
};

}  // namespace ddp::hierarchical
