#include "backends/gloo/schedule.hpp"

#include <algorithm>
#include <array>

namespace ddp::gloo {
namespace {

using backends::Collective;

// Below this a second step is dearer than each rank reducing everything by itself.
constexpr std::size_t small_bytes = 16 * 1024;
// Up to here the root sends its tensor to all; a larger one goes out in shares that the ranks then
// give to each other.
constexpr std::size_t small_broadcast_bytes = 64 * 1024;

// Of all ranks' shares of a chunk, which each rank stages twice; unless the shares would get small.
constexpr std::size_t most_chunk_bytes = 16 << 20;
constexpr std::size_t least_share_bytes = 64 * 1024;

}  // namespace

Schedule::Schedule(Mesh* mesh, const backends::Call& call, std::span<const double> factors,
                   const WaitContext& context, std::vector<std::byte>& staging)
    : mesh_(mesh),
      call_(call),
      factors_(factors),
      context_(context),
      staging_(staging),
      ranks_(mesh != nullptr ? static_cast<std::size_t>(mesh->ranks()) : 1),
      me_(mesh != nullptr ? static_cast<std::size_t>(mesh->rank()) : 0),
      root_(static_cast<std::size_t>(call.root)),
      input_(static_cast<const std::byte*>(call.input)),
      output_(static_cast<std::byte*>(call.output)),
      inputs_(ranks_) {}

void Schedule::run() {
    switch (call_.kind) {
        case Collective::all_reduce:
            return call_.bytes() <= small_bytes ? all_reduce_small() : all_reduce();
        case Collective::broadcast:
            return broadcast();
        case Collective::all_gather:
            return all_gather();
        case Collective::reduce_scatter:
            return reduce_scatter();
        case Collective::reduce:
            return reduce();
        case Collective::gather:
            return gather();
        case Collective::scatter:
            return scatter();
        case Collective::all_to_all:
            return all_to_all();
        case Collective::barrier:
        case Collective::allocate:
        case Collective::adopt:
            return;
    }
}

void Schedule::all_reduce_small() {
    const std::size_t size = call_.bytes();
    std::byte* const theirs = stage(ranks_ * size);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        inputs_[peer] = peer == me_ ? input_ : theirs + peer * size;
        receive(peer, theirs + peer * size, size);
        send(peer, input_, size);
    }
    flush();
    reduce_inputs(output_, call_.elements);
}

void Schedule::all_reduce() {
    reduce_in_chunks(
        [&](const Share& chunk, std::byte*) {
            const Shares shares = split(chunk);
            return Reduction{shares, output_ + bytes(shares[me_].first)};
        },
        [&](const Reduction& chunk) { collect_gather(output_, chunk.shares); });
}

void Schedule::reduce() {
    reduce_in_chunks(
        [&](const Share& chunk, std::byte* spare) {
            const Shares shares = split(chunk);
            return Reduction{shares, me_ == root_ ? output_ + bytes(shares[me_].first) : spare};
        },
        [&](const Reduction& chunk) {
            for (std::size_t peer = 0; me_ == root_ && peer < ranks_; ++peer) {
                const Share& share = chunk.shares[peer];
                receive(peer, output_ + bytes(share.first), bytes(share.count));
            }
            if (me_ != root_) send(root_, chunk.own, bytes(chunk.shares[me_].count));
        });
}

// A chunk takes the same elements of each rank's part.
void Schedule::reduce_scatter() {
    reduce_in_chunks(
        [&](const Share& chunk, std::byte*) {
            Shares shares;
            for (std::size_t rank = 0; rank < ranks_; ++rank) {
                shares.push_back({rank * call_.elements + chunk.first, chunk.count});
            }
            return Reduction{shares, output_ + bytes(chunk.first)};
        },
        [](const Reduction&) {});
}

// `plan(chunk, spare)`: who reduces what of it, and where to; spare memory has room for a share.
// `pass_on(reduction)` collects the messages with its result. While the results of a chunk travel,
// so do the inputs of the next.
template <class Plan, class PassOn>
void Schedule::reduce_in_chunks(const Plan& plan, const PassOn& pass_on) {
    const bool in_parts = call_.kind == backends::Collective::reduce_scatter;
    const std::size_t share_bytes =
        std::min(mesh_ != nullptr ? mesh_->long_message_bytes() : most_chunk_bytes,
                 std::max(most_chunk_bytes / ranks_, least_share_bytes));
    const std::size_t share = share_bytes / size_of(call_.dtype);
    const std::size_t most = std::min(in_parts ? share : share * ranks_, call_.elements);
    const std::size_t most_of_share = in_parts ? most : even_share({0, most}, 0, ranks_).count;
    const std::size_t memory = (ranks_ + 1) * bytes(most_of_share);  // of one of two chunks
    std::byte* const staged = stage((most < call_.elements ? 2 : 1) * memory);
    std::array<UnderWay, 2> chunks;
    const auto finish = [&](std::size_t number, std::byte* theirs) {
        UnderWay& chunk = chunks[number % 2];
        wait(chunk.inputs);
        add_inputs(chunk.reduction, theirs);
        pass_on(chunk.reduction);
        start(chunk.results);
    };
    std::size_t number = 0;
    for (std::size_t first = 0; first < call_.elements; first += most, ++number) {
        UnderWay& chunk = chunks[number % 2];
        std::byte* const theirs = staged + number % 2 * memory;
        wait(chunk.results);  // of the chunk before the last
        chunk.reduction = plan({first, std::min(most, call_.elements - first)},
                               theirs + ranks_ * bytes(most_of_share));
        collect_inputs(chunk.reduction, theirs);
        start(chunk.inputs);
        if (number > 0) finish(number - 1, staged + (number - 1) % 2 * memory);
    }
    if (number == 0) return;
    finish(number - 1, staged + (number - 1) % 2 * memory);
    for (UnderWay& chunk : chunks) wait(chunk.results);
}

void Schedule::broadcast() {
    const std::size_t size = call_.bytes();
    if (me_ == root_) backends::copy(output_, input_, size);
    const bool in_shares = ranks_ > 2 && size > small_broadcast_bytes;
    const Shares shares =
        in_shares ? split({0, call_.elements}) : Shares(ranks_, {0, call_.elements});
    if (me_ == root_) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            send(peer, output_ + bytes(shares[peer].first), bytes(shares[peer].count));
        }
    } else {
        receive(root_, output_ + bytes(shares[me_].first), bytes(shares[me_].count));
    }
    flush();
    if (!in_shares) return;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer != root_) send(peer, output_ + bytes(shares[me_].first), bytes(shares[me_].count));
        if (me_ == root_) continue;
        receive(peer, output_ + bytes(shares[peer].first), bytes(shares[peer].count));
    }
    flush();
}

void Schedule::all_gather() {
    const Shares parts = parts_of(&backends::Parts::send);
    backends::copy(output_ + bytes(parts[me_].first), input_, bytes(parts[me_].count));
    collect_gather(output_, parts);
    flush();
}

void Schedule::gather() {
    const std::size_t size = call_.bytes();
    if (me_ == root_) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            receive(peer, output_ + peer * size, size);
        }
        backends::copy(output_ + me_ * size, input_, size);
    } else {
        send(root_, input_, size);
    }
    flush();
}

void Schedule::scatter() {
    const std::size_t size = call_.bytes();
    if (me_ == root_) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) send(peer, input_ + peer * size, size);
        flush();
        backends::copy(output_, input_ + me_ * size, size);
    } else {
        receive(root_, output_, size);
        flush();
    }
}

void Schedule::all_to_all() {
    const Shares out = parts_of(&backends::Parts::send);
    const Shares in = parts_of(&backends::Parts::receive);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        receive(peer, output_ + bytes(in[peer].first), bytes(in[peer].count));
        send(peer, input_ + bytes(out[peer].first), bytes(out[peer].count));
    }
    backends::copy(output_ + bytes(in[me_].first), input_ + bytes(out[me_].first),
                   bytes(in[me_].count));
    flush();
}

// What this rank reduces comes from each other one, and theirs goes to them.
void Schedule::collect_inputs(const Reduction& chunk, std::byte* theirs) {
    const std::size_t own_bytes = bytes(chunk.shares[me_].count);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        receive(peer, theirs + peer * own_bytes, own_bytes);
        send(peer, input_ + bytes(chunk.shares[peer].first), bytes(chunk.shares[peer].count));
    }
}

void Schedule::add_inputs(const Reduction& chunk, const std::byte* theirs) {
    const Share own = chunk.shares[me_];
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        inputs_[peer] = peer == me_ ? input_ + bytes(own.first) : theirs + peer * bytes(own.count);
    }
    reduce_inputs(chunk.own, own.count);
}

// `buffer` holds this rank's share; afterwards everybody's.
void Schedule::collect_gather(std::byte* buffer, const Shares& shares) {
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        receive(peer, buffer + bytes(shares[peer].first), bytes(shares[peer].count));
        send(peer, buffer + bytes(shares[me_].first), bytes(shares[me_].count));
    }
}

void Schedule::reduce_inputs(std::byte* output, std::size_t elements) {
    if (elements == 0) return;
    backends::reduce(inputs_, {&output, 1}, elements, {call_.dtype, call_.op.kind, factors_});
}

Shares Schedule::split(const Share& whole) const {
    Shares shares;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        shares.push_back(even_share(whole, rank, ranks_));
    }
    return shares;
}

Shares Schedule::parts_of(std::vector<std::size_t> backends::Parts::*counts) const {
    return shares_of(call_.parts ? &((*call_.parts).*counts) : nullptr, ranks_, call_.elements);
}

std::byte* Schedule::stage(std::size_t wanted_bytes) {
    if (staging_.size() < wanted_bytes) staging_.resize(wanted_bytes);
    return staging_.data();
}

void Schedule::send(std::size_t peer, const std::byte* data, std::size_t size) {
    if (peer != me_) messages_.send(peer, data, size);
}

void Schedule::receive(std::size_t peer, std::byte* data, std::size_t size) {
    if (peer != me_) messages_.receive(peer, data, size);
}

void Schedule::start(std::optional<Exchange>& exchange) {
    if (mesh_ != nullptr) {
        exchange.emplace(*mesh_).start(messages_.all(), context_, Progress::by_waiter);
    }
    messages_.clear();
}

void Schedule::wait(std::optional<Exchange>& exchange) {
    if (exchange) exchange->wait(context_);
}

void Schedule::flush() {
    if (mesh_ != nullptr) mesh_->exchange(messages_.all(), context_);
    messages_.clear();
}

}  // namespace ddp::gloo
