// reduce_scatter and reduce.
#include "backends/shm/collectives/shm_exchange.hpp"

namespace ddp::shm {

void ShmBackend::reduce_scatter(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = round_down(tuning_.chunk_bytes / (ranks_ - 1), cache_line);
    if (ranks_ == 2) running.rotate(bytes, piece);
    running.deliver(bytes, running.output() == running.input() + rank_ * bytes);
    const auto stage = [&](std::size_t chunk) {
        stage_parts(running, Window::of(chunk, bytes, piece), piece);
    };
    const auto take = [&](std::size_t chunk) {
        const Window window = Window::of(chunk, bytes, piece);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            inputs_[peer] = peer == rank_
                                ? running.input() + rank_ * bytes + window.first
                                : running.slot(peer, window.index) + place(peer, rank_) * piece;
        }
        std::byte* const output = running.output() + window.first;
        backends::reduce(inputs_, {&output, 1}, window.count / running.element_bytes,
                         reduction(running), running.delivery);
    };
    const auto chunks = [&] { return chunks_of(bytes, piece); };
    const auto direct = [&] {
        find_inputs(running, {rank_ * bytes, bytes});
        std::byte* const output = running.output();
        backends::reduce(inputs_, {&output, 1}, running.call.elements, reduction(running),
                         running.delivery);
    };
    exchange(running, Exchange{Role::both, {ranks_ * bytes, 0, 0}, chunks, stage, take, direct});
}

void ShmBackend::reduce(Running& running) {
    const std::size_t bytes = running.call.bytes();
    const std::size_t piece = tuning_.chunk_bytes;
    const bool takes = rank_ == running.root();
    running.rotate(bytes, piece);
    running.deliver(bytes, running.output() == running.input());
    const auto stage = [&](std::size_t chunk) {
        if (takes) return;
        const Window window = Window::of(chunk, bytes, piece);
        running.put(running.slot(rank_, chunk), running.input() + window.first, window.count);
    };
    const auto take = [&](std::size_t chunk) {
        if (!takes) return;
        const Window window = Window::of(chunk, bytes, piece);
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            inputs_[peer] =
                peer == rank_ ? running.input() + window.first : running.slot(peer, window.index);
        }
        std::byte* const output = running.output() + window.first;
        backends::reduce(inputs_, {&output, 1}, window.count / running.element_bytes,
                         reduction(running), running.delivery);
    };
    const auto chunks = [&] { return chunks_of(bytes, piece); };
    const auto direct = [&] {
        if (!takes) return;
        find_inputs(running, {0, bytes});
        std::byte* const output = running.output();
        backends::reduce(inputs_, {&output, 1}, running.call.elements, reduction(running),
                         running.delivery);
    };
    exchange(
        running,
        Exchange{takes ? Role::takes : Role::gives, {bytes, 0, 0}, chunks, stage, take, direct});
}

}  // namespace ddp::shm
