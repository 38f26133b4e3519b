#include "backends/gloo/schedule.hpp"

#include <algorithm>

namespace ddp::gloo {
namespace {

using backends::Collective;

// Below this a second step is dearer than each rank reducing everything by itself.
constexpr std::size_t small_bytes = 16 * 1024;
// Up to here the root sends its tensor to all; a larger one goes out in shares that the ranks then
// give to each other.
constexpr std::size_t small_broadcast_bytes = 64 * 1024;
// Of all ranks' shares of a chunk.
constexpr std::size_t chunk_bytes = 8 << 20;

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
    const std::size_t chunk = chunk_bytes / size_of(call_.dtype);
    for (std::size_t first = 0; first < call_.elements; first += chunk) {
        const Shares shares = split({first, std::min(chunk, call_.elements - first)});
        reduce_shares(shares, output_ + bytes(shares[me_].first));
        gather_shares(output_, shares);
    }
}

void Schedule::reduce() {
    const std::size_t chunk = chunk_bytes / size_of(call_.dtype);
    for (std::size_t first = 0; first < call_.elements; first += chunk) {
        const Shares shares = split({first, std::min(chunk, call_.elements - first)});
        const std::size_t own_bytes = bytes(shares[me_].count);
        // Behind what reduce_shares stages, where it does not move.
        std::byte* const own = me_ == root_ ? output_ + bytes(shares[me_].first)
                                            : stage((ranks_ + 1) * own_bytes) + ranks_ * own_bytes;
        reduce_shares(shares, own);
        send_share_to_root(shares, own);
    }
}

void Schedule::send_share_to_root(const Shares& shares, std::byte* own) {
    if (me_ == root_) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            receive(peer, output_ + bytes(shares[peer].first), bytes(shares[peer].count));
        }
    } else {
        send(root_, own, bytes(shares[me_].count));
    }
    flush();
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
    gather_shares(output_, parts);
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

// A chunk takes the same elements of each rank's part.
void Schedule::reduce_scatter() {
    const std::size_t chunk = std::max<std::size_t>(chunk_bytes / size_of(call_.dtype) / ranks_, 1);
    for (std::size_t first = 0; first < call_.elements; first += chunk) {
        const std::size_t count = std::min(chunk, call_.elements - first);
        Shares shares;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            shares.push_back({rank * call_.elements + first, count});
        }
        reduce_shares(shares, output_ + bytes(first));
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

// Reads the whole input before it writes, so `output` may be this rank's share of it.
void Schedule::reduce_shares(const Shares& shares, std::byte* output) {
    const Share own = shares[me_];
    const std::size_t own_bytes = bytes(own.count);
    std::byte* const theirs = stage(ranks_ * own_bytes);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        inputs_[peer] = peer == me_ ? input_ + bytes(own.first) : theirs + peer * own_bytes;
        receive(peer, theirs + peer * own_bytes, own_bytes);
        send(peer, input_ + bytes(shares[peer].first), bytes(shares[peer].count));
    }
    flush();
    reduce_inputs(output, own.count);
}

// `buffer` holds this rank's share; afterwards everybody's.
void Schedule::gather_shares(std::byte* buffer, const Shares& shares) {
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        receive(peer, buffer + bytes(shares[peer].first), bytes(shares[peer].count));
        send(peer, buffer + bytes(shares[me_].first), bytes(shares[me_].count));
    }
    flush();
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

void Schedule::flush() {
    if (mesh_ != nullptr) mesh_->exchange(messages_.all(), context_);
    messages_.clear();
}

}  // namespace ddp::gloo
