#include "backends/hierarchical/reduction_schedule.hpp"

#include "backends/reduction/reduce.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace ddp::hierarchical {
namespace {

using backends::Call;
using backends::Collective;
using backends::Parts;

// Of the tensor; of reduce_scatter: of all ranks' parts. While a chunk is between hosts, another is
// on them; each costs some waits for other ranks.
constexpr std::size_t least_chunk_bytes = 8 << 20;
constexpr std::size_t most_chunk_bytes = 32 << 20;
constexpr std::size_t wanted_chunks = 4;
// Up to here each host finishes all by itself.
constexpr std::size_t finished_everywhere_bytes = 64 << 10;

// Between sums, the operation without what is done before and after.
ReduceOp::Kind between_sums(ReduceOp::Kind op) {
    return op == ReduceOp::avg || op == ReduceOp::premul_sum ? ReduceOp::sum : op;
}

}  // namespace

ReductionSchedule::ReductionSchedule(const Places& places, const Call& call,
                                     std::span<const double> factors, Staging& staging)
    : places_(places),
      layout_(places.layout),
      call_(call),
      factors_(factors),
      staging_(staging),
      element_(size_of(call.dtype)),
      sum_type_(backends::sum_type(call.dtype)),
      sum_element_(size_of(sum_type_)),
      root_(static_cast<std::size_t>(call.root)),
      sum_at_(layout_.ranks()) {}

void ReductionSchedule::run() {
    const std::size_t most = chunk_elements();
    std::deque<Chunk> under_way;  // the last has been added here, the one before finished, too
    for (std::size_t first = 0, number = 0; first < call_.elements; first += most, ++number) {
        under_way.push_back(plan({first, std::min(most, call_.elements - first)}));
        under_way.back().number = number;
        add_here(under_way.back());
        if (number > 0) finish_pieces(under_way[under_way.size() - 2]);
        if (number > 1) {
            hand_out(under_way.front());
            under_way.pop_front();
        }
    }
    if (under_way.empty()) return;
    finish_pieces(under_way.back());
    for (Chunk& chunk : under_way) hand_out(chunk);
}

std::size_t ReductionSchedule::chunk_elements() const {
    const bool in_parts = call_.kind == Collective::reduce_scatter;
    const std::size_t tensors = in_parts ? layout_.ranks() : 1;
    const std::size_t wanted = tensors * call_.bytes() / wanted_chunks;
    return std::max<std::size_t>(
        std::clamp(wanted, least_chunk_bytes, most_chunk_bytes) / element_ / tensors, 1);
}

ReductionSchedule::Chunk ReductionSchedule::plan(const Share& elements) const {
    Chunk chunk;
    if (call_.kind == Collective::reduce_scatter) {
        chunk.cut.whole = elements;
        plan_parts(chunk);
    } else {
        chunk.cut = Cut::of(layout_, elements, element_);
        plan_columns(chunk);
    }
    return chunk;
}

// Each host finishes its share of each column; where there is a root, its host all of it.
void ReductionSchedule::plan_columns(Chunk& chunk) const {
    const Cut& cut = chunk.cut;
    for (std::size_t index = 0; index < layout_.mine().count; ++index) {
        chunk.regions.push_back(cut.region(layout_, layout_.my_host(), index).count);
    }
    chunk.region = cut.region(layout_, layout_.my_host(), layout_.my_index());
    const bool to_root = call_.kind == Collective::reduce;
    chunk.finished_everywhere = !to_root && bytes(cut.whole.count) <= finished_everywhere_bytes;
    const RankRange mine = layout_.columns_of(layout_.my_host(), layout_.my_index(), cut.columns);
    for (std::size_t column = mine.first; column < mine.end(); ++column) {
        std::vector<std::size_t> helpers;
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            helpers.push_back(layout_.helper(host, column, cut.columns));
        }
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            Share share = cut.column(column);
            if (to_root && host != layout_.host_of(root_)) continue;
            if (chunk.finished_everywhere && host != layout_.my_host()) continue;
            if (!to_root && !chunk.finished_everywhere) {
                share = even_share(share, host, layout_.hosts());
            }
            share.first -= chunk.region.first;
            chunk.pieces.push_back({share, helpers[host], helpers});
        }
    }
}

// Each rank finishes the same elements of its part.
void ReductionSchedule::plan_parts(Chunk& chunk) const {
    const std::size_t count = chunk.cut.whole.count;
    for (std::size_t index = 0; index < layout_.mine().count; ++index) {
        std::size_t parts = 0;
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            const RankRange helped = layout_.helped(layout_.my_host(), index, host);
            parts += helped.count;
            for (std::size_t rank = helped.first; rank < helped.end(); ++rank) {
                if (index != layout_.my_index()) continue;
                std::vector<std::size_t> helpers;
                for (std::size_t other = 0; other < layout_.hosts(); ++other) {
                    helpers.push_back(layout_.helper_of(other, rank));
                }
                chunk.pieces.push_back({{chunk.pieces.size() * count, count}, rank, helpers});
            }
        }
        chunk.regions.push_back(parts * count);
    }
}

void ReductionSchedule::add_here(Chunk& chunk) {
    const auto& subtrees = layout_.subtrees(layout_.my_host());
    std::byte* const sums =
        staging_.sums[chunk.number % 2].reserve(sum_bytes(carried(chunk)) * subtrees.size());
    const bool as_they_are = sum_type_ == call_.dtype && subtrees.size() == 1;
    if (as_they_are && layout_.mine().count > 1) {
        auto parts = std::make_shared<Parts>();
        parts->send = chunk.regions;
        const bool scales = call_.op.kind == ReduceOp::premul_sum;
        places_.local.run({.kind = Collective::reduce_scatter,
                           .dtype = call_.dtype,
                           .op = scales ? call_.op : ReduceOp(between_sums(call_.op.kind)),
                           .input = own_input(chunk),
                           .output = sums,
                           .parts = std::move(parts)},
                          places_.patience.of_ranks());
    } else {
        add_subtrees(chunk, sums);
    }
    exchange_sums(chunk, sums);
}

// Gets what this rank carries of the inputs of each rank of this host, and adds them itself.
void ReductionSchedule::add_subtrees(const Chunk& chunk, std::byte* sums) {
    const std::size_t count = carried(chunk);
    const std::size_t ranks = layout_.mine().count;
    const std::byte* inputs = own_input(chunk);
    if (ranks > 1) {
        std::byte* const gathered = staging_.inputs.reserve(bytes(count) * ranks);
        auto parts = std::make_shared<Parts>();
        parts->send = chunk.regions;
        parts->receive.assign(ranks, count);
        places_.local.run({.kind = Collective::all_to_all,
                           .dtype = call_.dtype,
                           .input = inputs,
                           .output = gathered,
                           .parts = std::move(parts)},
                          places_.patience.of_ranks());
        inputs = gathered;
    }
    for (const RankRange& subtree : layout_.subtrees(layout_.my_host())) {
        add_subtree(inputs, count, subtree, sums);
        sums += sum_bytes(count);
    }
}

void ReductionSchedule::exchange_sums(const Chunk& chunk, const std::byte* sums) {
    std::size_t expected = 0;
    for (const Piece& piece : chunk.pieces) {
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            if (piece.owner != layout_.rank() || host == layout_.my_host()) continue;
            expected += layout_.subtrees(host).size() * sum_bytes(piece.share.count);
        }
    }
    std::byte* theirs = staging_.theirs[chunk.number % 2].reserve(expected);
    const auto send_to = [&](std::size_t rank, const Piece& piece) {
        const std::byte* from = sums + sum_bytes(piece.share.first);
        for (std::size_t tree = 0; tree < layout_.subtrees(layout_.my_host()).size(); ++tree) {
            messages_.send(rank, from, sum_bytes(piece.share.count));
            from += sum_bytes(carried(chunk));
        }
    };
    const bool one_way = call_.kind == Collective::reduce;
    for (const Piece& piece : chunk.pieces) {
        const bool wants_credit = one_way && piece.share.count > 0;
        if (piece.owner != layout_.rank()) {
            send_to(piece.owner, piece);
            if (wants_credit) messages_.receive_credit(piece.owner);
            continue;
        }
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            if (host == layout_.my_host()) continue;
            if (chunk.finished_everywhere) send_to(piece.helpers[host], piece);
            if (wants_credit) messages_.send_credit(piece.helpers[host]);
            for (std::size_t tree = 0; tree < layout_.subtrees(host).size(); ++tree) {
                messages_.receive(piece.helpers[host], theirs, sum_bytes(piece.share.count));
                theirs += sum_bytes(piece.share.count);
            }
        }
    }
    auto& exchange = sums_[chunk.number % 2].emplace(places_.mesh);
    start(exchange);
}

const std::byte* ReductionSchedule::own_input(const Chunk& chunk) {
    if (call_.kind == Collective::reduce_scatter) return pack_parts(chunk);
    return static_cast<const std::byte*>(call_.input) + bytes(chunk.cut.whole.first);
}

// This rank's input, by who carries it here.
const std::byte* ReductionSchedule::pack_parts(const Chunk& chunk) {
    const auto* const input = static_cast<const std::byte*>(call_.input);
    const std::size_t size = bytes(chunk.cut.whole.count);
    std::byte* const packed = staging_.packed.reserve(size * layout_.ranks());
    std::byte* to = packed;
    for (std::size_t index = 0; index < layout_.mine().count; ++index) {
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            const RankRange helped = layout_.helped(layout_.my_host(), index, host);
            for (std::size_t rank = helped.first; rank < helped.end(); ++rank, to += size) {
                backends::copy(to, input + bytes(rank * call_.elements + chunk.cut.whole.first),
                               size);
            }
        }
    }
    return packed;
}

void ReductionSchedule::add_subtree(const std::byte* inputs, std::size_t carried,
                                    const RankRange& subtree, std::byte* sum) {
    if (carried == 0) return;
    std::vector<const std::byte*> from;
    std::span<const double> factors;
    if (!factors_.empty()) factors = factors_.subspan(subtree.first, subtree.count);
    const bool wide = sum_type_ != call_.dtype;
    std::byte* const widened =
        wide ? staging_.wide.reserve(sum_bytes(carried) * subtree.count) : nullptr;
    for (std::size_t i = 0; i < subtree.count; ++i) {
        const std::size_t index = subtree.first + i - layout_.mine().first;
        from.push_back(inputs + bytes(carried) * index);
        if (!wide) continue;
        std::byte* const to = widened + sum_bytes(carried) * i;
        backends::widen(to, from.back(), carried, call_.dtype, factors.empty() ? 1 : factors[i]);
        from.back() = to;
    }
    const bool scales = !wide && !factors.empty();
    backends::reduce(from, {&sum, 1}, carried,
                     {sum_type_, scales ? ReduceOp::premul_sum : between_sums(call_.op.kind),
                      scales ? factors : std::span<const double>{}});
}

void ReductionSchedule::finish_pieces(Chunk& chunk) {
    sums_[chunk.number % 2]->wait(places_.patience.of_hosts());
    std::byte* const sums = staging_.sums[chunk.number % 2].reserve(0);
    std::byte* theirs = staging_.theirs[chunk.number % 2].reserve(0);
    const bool goes_on = call_.kind == Collective::all_reduce && !chunk.finished_everywhere;
    for (const Piece& piece : chunk.pieces) {
        std::byte* const result = result_of(chunk, piece);
        if (piece.owner != layout_.rank()) {
            if (goes_on) messages_.receive(piece.owner, result, bytes(piece.share.count));
            continue;
        }
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            const auto& subtrees = layout_.subtrees(host);
            for (std::size_t tree = 0; tree < subtrees.size(); ++tree) {
                std::byte*& at = sum_at_[subtrees[tree].first];
                if (host == layout_.my_host()) {
                    at = sums + tree * sum_bytes(carried(chunk)) + sum_bytes(piece.share.first);
                } else {
                    at = theirs;
                    theirs += sum_bytes(piece.share.count);
                }
            }
        }
        add_all(piece, result);
        for (std::size_t host = 0; goes_on && host < layout_.hosts(); ++host) {
            if (host != layout_.my_host()) {
                messages_.send(piece.helpers[host], result, bytes(piece.share.count));
            }
        }
    }
    auto& exchange = results_[chunk.number % 2].emplace(places_.mesh);
    start(exchange);
}

// The top of the tree: the sums of the subtrees of all hosts, in place.
void ReductionSchedule::add_all(const Piece& piece, std::byte* output) {
    const std::size_t count = piece.share.count;
    if (count == 0) return;
    const auto add = [&](const auto& self, const RankRange& tree) -> std::byte* {
        const auto& here = layout_.subtrees(layout_.host_of(tree.first));
        if (std::find(here.begin(), here.end(), tree) != here.end()) return sum_at_[tree.first];
        const std::size_t middle = middle_of_tree(tree.count);
        std::byte* const left = self(self, {tree.first, middle});
        const std::byte* const both[] = {left,
                                         self(self, {tree.first + middle, tree.count - middle})};
        backends::reduce(both, {&left, 1}, count, {sum_type_, between_sums(call_.op.kind), {}});
        return left;
    };
    const std::byte* const sum = add(add, {0, layout_.ranks()});
    backends::finish_sum(output, sum, count, call_.dtype,
                         call_.op.kind == ReduceOp::avg ? layout_.ranks() : 1);
}

// Where the piece's result belongs on this rank.
std::byte* ReductionSchedule::result_of(const Chunk& chunk, const Piece& piece) {
    auto* const output = static_cast<std::byte*>(call_.output);
    switch (call_.kind) {
        case Collective::all_reduce:
            return output + bytes(chunk.region.first + piece.share.first);
        case Collective::reduce_scatter:
            return output + bytes(chunk.cut.whole.first);
        default:
            return staging_.results[chunk.number % 2].reserve(bytes(carried(chunk))) +
                   bytes(piece.share.first);
    }
}

void ReductionSchedule::hand_out(Chunk& chunk) {
    results_[chunk.number % 2]->wait(places_.patience.of_hosts());
    const std::size_t ranks = layout_.mine().count;
    const auto output = [&] {  // there is none where a root gets it
        return static_cast<std::byte*>(call_.output) + bytes(chunk.cut.whole.first);
    };
    auto parts = std::make_shared<Parts>();
    if (call_.kind == Collective::all_reduce && ranks > 1) {
        parts->send = chunk.regions;
        places_.local.run({.kind = Collective::all_gather,
                           .dtype = call_.dtype,
                           .input = output() + bytes(chunk.region.first - chunk.cut.whole.first),
                           .output = output(),
                           .parts = std::move(parts)},
                          places_.patience.of_ranks());
    } else if (call_.kind == Collective::reduce && layout_.is_here(root_)) {
        const bool is_root = layout_.rank() == root_;
        parts->send.assign(ranks, 0);
        parts->send[layout_.index_of(root_)] = carried(chunk);
        parts->receive = is_root ? chunk.regions : std::vector<std::size_t>(ranks, 0);
        std::byte* const results = staging_.results[chunk.number % 2].reserve(0);
        places_.local.run({.kind = Collective::all_to_all,
                           .dtype = call_.dtype,
                           .input = results,
                           .output = is_root ? output() : results,
                           .parts = std::move(parts)},
                          places_.patience.of_ranks());
    }
}

void ReductionSchedule::start(gloo::Exchange& exchange) {
    exchange.start(messages_.all(), places_.patience.of_hosts());
    messages_.clear();
}

}  // namespace ddp::hierarchical
