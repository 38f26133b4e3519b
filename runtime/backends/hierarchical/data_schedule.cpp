#include "backends/hierarchical/data_schedule.hpp"

#include "backends/reduction/reduce.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace ddp::hierarchical {
namespace {

using backends::Call;
using backends::Collective;
using backends::Parts;
using gloo::Exchange;

constexpr std::size_t broadcast_chunk_bytes = 4 << 20;

}  // namespace

DataSchedule::DataSchedule(const Places& places, const Call& call)
    : places_(places),
      layout_(places.layout),
      call_(call),
      root_(static_cast<std::size_t>(call.root)),
      root_is_here_(layout_.is_here(root_)),
      input_(static_cast<const std::byte*>(call.input)),
      output_(static_cast<std::byte*>(call.output)) {}

void DataSchedule::run() {
    switch (call_.kind) {
        case Collective::broadcast:
            return broadcast();
        case Collective::all_gather:
            return all_gather();
        case Collective::gather:
            return gather();
        case Collective::scatter:
            return scatter();
        case Collective::all_to_all:
            return all_to_all();
        default:
            return;
    }
}

// While a chunk is between hosts, the ranks of each host give each other the one before.
void DataSchedule::broadcast() {
    if (layout_.rank() == root_) backends::copy(output_, input_, call_.bytes());
    const std::size_t most = broadcast_chunk_bytes / size_of(call_.dtype);
    Exchange before(places_.mesh);
    Share chunk_before;
    for (std::size_t first = 0; first < call_.elements; first += most) {
        const Share chunk{first, std::min(most, call_.elements - first)};
        Exchange exchange(places_.mesh);
        start_broadcast(exchange, chunk);
        finish_broadcast(before, chunk_before);
        before = std::move(exchange);
        chunk_before = chunk;
    }
    finish_broadcast(before, chunk_before);
}

void DataSchedule::start_broadcast(Exchange& exchange, const Share& chunk) {
    const Cut cut = Cut::of(layout_, chunk, size_of(call_.dtype));
    if (layout_.rank() == root_) {
        for (std::size_t rank = 0; rank < layout_.ranks(); ++rank) {
            if (layout_.is_here(rank)) continue;
            const Share share = cut.region(layout_, layout_.host_of(rank), layout_.index_of(rank));
            if (share.count == 0) continue;
            messages_.send(rank, output_ + bytes(share.first), bytes(share.count));
            messages_.receive_credit(rank);
        }
    } else if (!root_is_here_) {
        const Share share = cut.region(layout_, layout_.my_host(), layout_.my_index());
        messages_.receive(root_, output_ + bytes(share.first), bytes(share.count));
        if (share.count > 0) messages_.send_credit(root_);
    }
    start(exchange);
}

void DataSchedule::finish_broadcast(Exchange& exchange, const Share& chunk) {
    if (chunk.count == 0) return;
    std::byte* const at = output_ + bytes(chunk.first);
    if (root_is_here_) {
        run_here({.kind = Collective::broadcast,
                  .dtype = call_.dtype,
                  .root = static_cast<int>(layout_.index_of(root_)),
                  .elements = chunk.count,
                  .input = at,
                  .output = at});
        return exchange.wait(places_.patience.of_hosts());
    }
    exchange.wait(places_.patience.of_hosts());
    const Cut cut = Cut::of(layout_, chunk, size_of(call_.dtype));
    auto parts = std::make_shared<Parts>();
    for (std::size_t index = 0; index < layout_.mine().count; ++index) {
        parts->send.push_back(cut.region(layout_, layout_.my_host(), index).count);
    }
    const Share own = cut.region(layout_, layout_.my_host(), layout_.my_index());
    run_here({.kind = Collective::all_gather,
              .dtype = call_.dtype,
              .input = output_ + bytes(own.first),
              .output = at,
              .parts = std::move(parts)});
}

// Each rank sends its part once to each other host.
void DataSchedule::all_gather() {
    const gloo::Shares parts = parts_of(&Parts::send);
    const auto at = [&](std::size_t rank) { return output_ + bytes(parts[rank].first); };
    const std::size_t me = layout_.rank();
    for (std::size_t host = 0; host < layout_.hosts(); ++host) {
        if (host == layout_.my_host()) continue;
        messages_.send(layout_.helper_of(host, me), input_, bytes(parts[me].count));
        const RankRange helped = layout_.helped(layout_.my_host(), layout_.my_index(), host);
        for (std::size_t rank = helped.first; rank < helped.end(); ++rank) {
            messages_.receive(rank, at(rank), bytes(parts[rank].count));
        }
    }
    exchange([&] { gather_on_this_host(layout_.my_host(), parts); });
    for (std::size_t host = 0; host < layout_.hosts(); ++host) {
        if (host != layout_.my_host()) gather_on_this_host(host, parts);
    }
}

// The parts of the ranks of host `of`, each of which one rank here has.
void DataSchedule::gather_on_this_host(std::size_t of, const gloo::Shares& parts) {
    auto counts = std::make_shared<Parts>();
    for (std::size_t index = 0; index < layout_.mine().count; ++index) {
        const RankRange helped = layout_.helped(layout_.my_host(), index, of);
        std::size_t count = 0;
        for (std::size_t rank = helped.first; rank < helped.end(); ++rank) {
            count += parts[rank].count;
        }
        counts->send.push_back(count);
    }
    const RankRange mine = layout_.helped(layout_.my_host(), layout_.my_index(), of);
    const bool is_own = of == layout_.my_host();
    const std::byte* const own =
        is_own || mine.count == 0 ? input_ : output_ + bytes(parts[mine.first].first);
    run_here({.kind = Collective::all_gather,
              .dtype = call_.dtype,
              .input = own,
              .output = output_ + bytes(parts[layout_.host(of).first].first),
              .parts = std::move(counts)});
}

void DataSchedule::gather() {
    const std::size_t size = call_.bytes();
    if (layout_.rank() == root_) {
        for (std::size_t rank = 0; rank < layout_.ranks(); ++rank) {
            if (!layout_.is_here(rank)) messages_.receive(rank, output_ + rank * size, size);
        }
    } else if (!root_is_here_) {
        messages_.send(root_, input_, size);
    }
    exchange([&] {
        if (!root_is_here_) return;
        run_here({.kind = Collective::gather,
                  .dtype = call_.dtype,
                  .root = static_cast<int>(layout_.index_of(root_)),
                  .elements = call_.elements,
                  .input = input_,
                  .output = output_ == nullptr ? nullptr : output_ + layout_.mine().first * size});
    });
}

void DataSchedule::scatter() {
    const std::size_t size = call_.bytes();
    if (layout_.rank() == root_) {
        for (std::size_t rank = 0; rank < layout_.ranks(); ++rank) {
            if (!layout_.is_here(rank)) messages_.send(rank, input_ + rank * size, size);
        }
    } else if (!root_is_here_) {
        messages_.receive(root_, output_, size);
    }
    // The output may be a part of the input, which is sent from.
    exchange([&] {
        if (!root_is_here_) return;
        run_here({.kind = Collective::scatter,
                  .dtype = call_.dtype,
                  .root = static_cast<int>(layout_.index_of(root_)),
                  .elements = call_.elements,
                  .input = input_ == nullptr ? nullptr : input_ + layout_.mine().first * size,
                  .output = output_});
    });
}

void DataSchedule::all_to_all() {
    const gloo::Shares out = parts_of(&Parts::send);
    const gloo::Shares in = parts_of(&Parts::receive);
    auto here = std::make_shared<Parts>();
    for (std::size_t rank = 0; rank < layout_.ranks(); ++rank) {
        if (layout_.is_here(rank)) {
            here->send.push_back(out[rank].count);
            here->receive.push_back(in[rank].count);
        } else {
            messages_.receive(rank, output_ + bytes(in[rank].first), bytes(in[rank].count));
            messages_.send(rank, input_ + bytes(out[rank].first), bytes(out[rank].count));
        }
    }
    const std::size_t first = layout_.mine().first;
    exchange([&] {
        run_here({.kind = Collective::all_to_all,
                  .dtype = call_.dtype,
                  .input = input_ + bytes(out[first].first),
                  .output = output_ + bytes(in[first].first),
                  .parts = std::move(here)});
    });
}

template <class Body>
void DataSchedule::exchange(const Body& meanwhile) {
    Exchange exchange(places_.mesh);
    start(exchange);
    meanwhile();
    exchange.wait(places_.patience.of_hosts());
}

void DataSchedule::run_here(const Call& step) {
    places_.local.run(step, places_.patience.of_ranks());
}

void DataSchedule::start(gloo::Exchange& exchange) {
    exchange.start(messages_.all(), places_.patience.of_hosts());
    messages_.clear();
}

gloo::Shares DataSchedule::parts_of(std::vector<std::size_t> Parts::*counts) const {
    return gloo::shares_of(call_.parts ? &((*call_.parts).*counts) : nullptr, layout_.ranks(),
                           call_.elements);
}

}  // namespace ddp::hierarchical
