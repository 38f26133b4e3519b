// The collectives that only move: broadcast, gather, all_gather, scatter, all_to_all.
#include "backends/shm/collectives/shm_exchange.hpp"

#include <numeric>

namespace ddp::shm {
namespace {

std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
    return offsets;
}

}  // namespace

void ShmBackend::broadcast(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = tuning_.chunk_bytes;
    const bool gives = rank_ == running.root();
    running.rotate(bytes, piece);
    running.deliver(bytes, false);
    const auto stage = [&](std::size_t chunk) {
        if (!gives) return;
        const Window window = Window::of(chunk, bytes, piece);
        running.put(running.slot(rank_, chunk), running.input() + window.first, window.count);
    };
    const auto take = [&](std::size_t chunk) {
        if (gives) return;
        const Window window = Window::of(chunk, bytes, piece);
        running.take(running.output() + window.first, running.slot(running.root(), window.index),
                     window.count);
    };
    const auto chunks = [&] { return chunks_of(bytes, piece); };
    // The root can do as much of it as each other rank.
    const auto direct = [&] {
        const std::size_t given = round_down(bytes / ranks_, cache_line);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const bool mine = gives ? peer != rank_ : peer == rank_;
            if (mine) move(running, {running.root(), peer, bytes, 0, 0}, given);
        }
    };
    if (!gives) await(running, running.root(), 0, bytes);
    exchange(
        running,
        Exchange{
            gives ? Role::gives : Role::takes, {bytes, bytes, bytes}, chunks, stage, take, direct});
    if (gives) running.take(running.output(), running.input(), bytes);
}

// gather; all_gather, even or not, when `everywhere`.
void ShmBackend::gather(Running& running, bool everywhere) {
    const std::size_t size = running.element_bytes;
    const std::size_t piece = tuning_.chunk_bytes;
    std::vector<std::size_t> bytes(ranks_, running.call.bytes());
    if (running.call.parts) {
        for (std::size_t r = 0; r < ranks_; ++r) bytes[r] = running.call.parts->send[r] * size;
    }
    const std::vector<std::size_t> offsets = offsets_of(bytes);
    const std::size_t total = offsets.back() + bytes.back();
    const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
    running.rotate(most, piece);
    const bool takes = everywhere || rank_ == running.root();
    const bool gives = everywhere || rank_ != running.root();
    // This rank's part of the output is written while its input is read for the others.
    std::byte* const own = takes ? running.output() + offsets[rank_] : nullptr;
    const bool takes_own = takes && own != running.input();
    running.deliver(total, false);
    running.size = most;
    const auto stage = [&](std::size_t chunk) {
        if (!gives) return;
        const Window window = Window::of(chunk, bytes[rank_], piece);
        const std::byte* const from = running.input() + window.first;
        const bool at_once = takes_own && running.delivery == backends::Store::cached;
        running.put(running.slot(rank_, chunk), from, window.count,
                    at_once ? own + window.first : nullptr);
        if (!takes_own || at_once) return;
        running.take(own + window.first, from, window.count);
    };
    const auto take = [&](std::size_t chunk) {
        if (!takes) return;
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const Window window = Window::of(chunk, bytes[peer], piece);
            if (peer == rank_ && gives) continue;  // written with the slot
            const std::byte* const from =
                peer == rank_ ? running.input() + window.first : running.slot(peer, window.index);
            running.take(running.output() + offsets[peer] + window.first, from, window.count);
        }
    };
    const auto chunks = [&] { return chunks_of(most, piece); };
    if (takes && ranks_ == 2) await(running, 1 - rank_, 0, bytes[1 - rank_]);
    // Who gives does it all: who takes copies its own part meanwhile, or gives too.
    const auto direct = [&] {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (!everywhere && peer != running.root()) continue;
            move(running, {rank_, peer, bytes[rank_], 0, offsets[rank_]}, bytes[rank_]);
        }
        for (std::size_t peer = 0; takes && peer < ranks_; ++peer) {
            if (peer == rank_) continue;
            move(running, {peer, rank_, bytes[peer], 0, offsets[peer]}, bytes[peer]);
        }
    };
    exchange(running, Exchange{everywhere ? Role::both
                               : takes    ? Role::takes
                                          : Role::gives,
                               {bytes[rank_], total, bytes[rank_]},
                               chunks,
                               stage,
                               take,
                               direct});
}

// What this rank reads of another's slot, if little: `bytes` from `offset` on.
void ShmBackend::await(Running& running, std::size_t rank, std::size_t offset,
                       std::size_t bytes) const {
    if (bytes <= few_lines) running.awaited = {running.slot(rank, 0) + offset, bytes};
}

// The window of each other rank's part of the input, as a piece of this rank's slot.
void ShmBackend::stage_parts(const Running& running, const Window& window, std::size_t piece) {
    std::byte* const to = running.slot(rank_, window.index);
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        running.put(to + place(rank_, peer) * piece,
                    running.input() + peer * running.call.bytes() + window.first, window.count);
    }
}

// The root's slot holds one piece for each other rank.
void ShmBackend::scatter(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    const bool gives = rank_ == running.root();
    if (ranks_ == 2) running.rotate(bytes, piece);
    running.deliver(bytes, false);
    const auto stage = [&](std::size_t chunk) {
        if (gives) stage_parts(running, Window::of(chunk, bytes, piece), piece);
    };
    const auto take = [&](std::size_t chunk) {
        const Window window = Window::of(chunk, bytes, piece);
        std::byte* const to = running.output() + window.first;
        if (gives) {
            running.take(to, running.input() + rank_ * bytes + window.first, window.count);
        } else {
            const std::size_t offset = place(running.root(), rank_) * piece;
            running.take(to, running.slot(running.root(), window.index) + offset, window.count);
        }
    };
    const auto chunks = [&] { return chunks_of(bytes, piece); };
    // The root has its own part to copy, which is half of the work of a part that crosses.
    const auto direct = [&] {
        const std::size_t given = round_down(bytes / (2 * ranks_), cache_line);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (!gives && peer != rank_) continue;
            move(running, {running.root(), peer, bytes, peer * bytes, 0}, given);
        }
    };
    if (!gives) {
        const std::size_t offset = place(running.root(), rank_) * piece;
        await(running, running.root(), offset, std::min(bytes, piece));
    }
    exchange(running, Exchange{gives ? Role::gives : Role::takes,
                               {ranks_ * bytes, bytes, bytes},
                               chunks,
                               stage,
                               take,
                               direct});
}

// Even or not. Each rank's slot holds one piece for each other rank.
void ShmBackend::all_to_all(Running& running) {
    const std::size_t size = running.element_bytes;
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    std::vector<std::size_t> sent(ranks_, running.call.bytes());
    std::vector<std::size_t> received = sent;
    if (running.call.parts) {
        for (std::size_t r = 0; r < ranks_; ++r) {
            sent[r] = running.call.parts->send[r] * size;
            received[r] = running.call.parts->receive[r] * size;
        }
    }
    if (ranks_ == 2 && !running.call.parts) running.rotate(running.call.bytes(), piece);
    const std::vector<std::size_t> from_offsets = offsets_of(sent);
    const std::vector<std::size_t> to_offsets = offsets_of(received);
    running.deliver(to_offsets.back() + received.back(), running.output() == running.input());
    running.size = *std::max_element(sent.begin(), sent.end());
    const auto stage = [&](std::size_t chunk) {
        std::byte* const to = running.slot(rank_, chunk);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (peer == rank_) continue;
            const Window window = Window::of(chunk, sent[peer], piece);
            running.put(to + place(rank_, peer) * piece,
                        running.input() + from_offsets[peer] + window.first, window.count);
        }
    };
    const auto take = [&](std::size_t chunk) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const Window window = Window::of(chunk, received[peer], piece);
            const std::byte* const from =
                peer == rank_ ? running.input() + from_offsets[rank_] + window.first
                              : running.slot(peer, window.index) + place(peer, rank_) * piece;
            running.take(running.output() + to_offsets[peer] + window.first, from, window.count);
        }
    };
    // Where in the peer's input or output this rank's part begins.
    const auto offset_at = [&](std::size_t peer, const std::vector<std::size_t>& begins) {
        return running.call.parts ? begins[peer] * size : rank_ * running.call.bytes();
    };
    // All give, so they do it all.
    const auto direct = [&] {
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            const std::size_t to = peer == rank_ ? to_offsets[rank_] : offset_at(peer, in_outputs_);
            move(running, {rank_, peer, sent[peer], from_offsets[peer], to}, sent[peer]);
            if (peer == rank_) continue;
            move(running,
                 {peer, rank_, received[peer], offset_at(peer, in_inputs_), to_offsets[peer]},
                 received[peer]);
        }
    };
    const auto chunks = [&] {
        const std::size_t most = running.call.parts ? largest_part_ : running.call.elements;
        return chunks_of(most * size, piece);
    };
    const std::size_t input = from_offsets.back() + sent.back();
    exchange(running, Exchange{Role::both,
                               {input, to_offsets.back() + received.back(), input / ranks_},
                               chunks,
                               stage,
                               take,
                               direct});
}

}  // namespace ddp::shm
