#include "backends/shm/shm_backend.hpp"

#include "backends/call_header.hpp"
#include "backends/shm/collectives/shm_running.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace ddp::shm {
namespace {

using backends::Call;
using backends::Collective;

Signature signature_of(const Call& call, std::uint64_t sequence, Offer offer) {
    const backends::CallHeader header = backends::header_of(call, sequence);
    Signature signature{};
    signature.elements = header.elements;
    signature.sequence = static_cast<std::uint32_t>(sequence);
    signature.parts = static_cast<std::uint32_t>(header.parts >> 32 ^ header.parts);
    if (header.parts != 0) signature.parts |= 1;  // never "even"
    signature.root = static_cast<std::uint16_t>(header.root);
    signature.kind = header.kind;
    signature.dtype = header.dtype;
    signature.op = header.op;
    signature.offer = offer;
    return signature;
}

backends::CallHeader header_of(const PhaseLine& line) {
    const Signature& signature = line.signature;
    backends::CallHeader header{};
    header.sequence = signature.sequence;
    header.elements = signature.elements;
    header.parts = signature.parts;
    header.root = signature.root;
    header.kind = signature.kind;
    header.dtype = signature.dtype;
    header.op = signature.op;
    header.source = line.source;
    return header;
}

bool same_call(const PhaseLine& one, const PhaseLine& other) {
    const Signature& a = one.signature;
    const Signature& b = other.signature;
    return a.elements == b.elements && a.sequence == b.sequence && a.parts == b.parts &&
           a.root == b.root && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
           one.source == other.source;
}

struct Pair {
    std::size_t from, to;
};
struct Counts {
    std::uint64_t sent, expected;
};
[[noreturn]] void throw_other_parts(Waiter& waiter, std::uint64_t sequence, const Pair& pair,
                                    const Counts& counts) {
    const int to = static_cast<int>(pair.to);
    waiter.abort(AbortReason::mismatch, to);
    throw UsageError("all_to_all, operation " + std::to_string(sequence) + ": " +
                     waiter.name(static_cast<int>(pair.from)) + " sends " +
                     std::to_string(counts.sent) + " elements to " + waiter.name(to) +
                     ", which expects " + std::to_string(counts.expected));
}

}  // namespace

ShmBackend::ShmBackend(std::shared_ptr<SharedRegion> region, int rank,
                       const std::atomic<std::uint32_t>* agent_abort,
                       std::span<const int> job_ranks, const HostKernel& kernel)
    : region_(std::move(region)),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(region_->ranks())),
      tuning_(region_->tuning()),
      waiter_(*region_, rank, agent_abort, job_ranks, kernel),
      barrier_(*region_, rank, waiter_),
      peers_(*region_, rank, waiter_),
      allocations_(rank, region_->ranks()),
      transfers_(*region_, rank, waiter_, peers_),
      stores_(tuning_),
      inputs_(ranks_),
      outputs_(ranks_),
      factors_(ranks_) {}

void ShmBackend::run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) {
    if (ranks_ == 1) return run_alone(call);
    if (!has_slots_ && !fits_in_lines(call)) reserve_slots();
    settle(deadline);
    Running running{*this, call, sequence, deadline, size_of(call.dtype)};
    try {
        run_together(running);
    } catch (...) {
        peers_.close();
        backends::rethrow_at(call.site_in_program());
    }
    claim_next_slot(running);
}

void ShmBackend::fail() noexcept {
    waiter_.abort(AbortReason::peer_failed, static_cast<int>(rank_));
}

std::exception_ptr ShmBackend::find_trouble(const std::string& during) noexcept {
    return waiter_.find_trouble(during);
}

// Others have read the lines of the slot that this rank writes next. They come back while nobody
// waits for them, which is a good part of a small call.
void ShmBackend::claim_next_slot(const Running& running) {
    const std::size_t bytes = running.call.bytes();
    const bool used_slot = running.stages && !fits_in_lines(running.call);
    if (!used_slot || bytes > few_lines || running.shift > 0) return;
    backends::claim(region_->slot(static_cast<int>(rank_), chunk_), bytes);
}

void ShmBackend::run_together(Running& running) {
    switch (running.call.kind) {
        case Collective::all_reduce:
            return all_reduce(running);
        case Collective::broadcast:
            return broadcast(running);
        case Collective::all_gather:
            return gather(running, true);
        case Collective::reduce_scatter:
            return reduce_scatter(running);
        case Collective::barrier:
            announce(running, {});
            return begin(running);
        case Collective::reduce:
            return reduce(running);
        case Collective::gather:
            return gather(running, false);
        case Collective::scatter:
            return scatter(running);
        case Collective::all_to_all:
            return all_to_all(running);
        case Collective::allocate:
            break;
    }
    throw Error("shm: cannot run " + running());
}

// Whether all that moves rides in the announcements.
bool ShmBackend::fits_in_lines(const Call& call) const {
    if (call.kind == Collective::barrier) return true;
    return call.kind == Collective::all_reduce &&
           call.bytes() <= std::min<std::uint64_t>(inline_bytes, tuning_.one_phase_bytes);
}

void ShmBackend::reserve_slots() {
    region_->reserve_slots(static_cast<int>(rank_));
    has_slots_ = true;
}

void ShmBackend::run_alone(const Call& call) {
    if (call.kind == Collective::barrier) return;
    const bool reduces = call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
                         call.kind == Collective::reduce_scatter;
    const std::size_t elements = call.parts ? call.parts->send[0] : call.elements;
    if (call.parts && !call.parts->receive.empty() && call.parts->receive[0] != elements) {
        throw UsageError("all_to_all: this rank sends " + std::to_string(elements) +
                         " elements to itself, but expects " +
                         std::to_string(call.parts->receive[0]));
    }
    if (!reduces) return backends::copy(call.output, call.input, elements * size_of(call.dtype));
    const auto* const input = static_cast<const std::byte*>(call.input);
    auto* const output = static_cast<std::byte*>(call.output);
    const bool scaled = call.op.kind == ReduceOp::premul_sum;
    const std::span<const double> factors(&call.op.factor, scaled ? 1 : 0);
    backends::reduce({&input, 1}, {&output, 1}, elements, {call.dtype, call.op.kind, factors});
}

void ShmBackend::leave_unsettled(Running& running) {
    const std::uint32_t phase = barrier_.arrive();
    unsettled_.emplace(Unsettled{running.call, running.sequence, phase});
}

void ShmBackend::settle(const base::Deadline& deadline) {
    if (!unsettled_) return;
    const Unsettled left = *std::exchange(unsettled_, std::nullopt);
    Running running{*this, left.call, left.sequence, deadline, size_of(left.call.dtype)};
    running.first_phase = left.phase;
    try {
        barrier_.wait(left.phase, deadline, running);
        compare_calls(running);
    } catch (...) {
        backends::rethrow_at(left.call.site_in_program());
    }
}

// Fills in this rank's announcement of the call; begin() publishes it.
void ShmBackend::announce(Running& running, Offer offer) {
    Announcement& mine = barrier_.next_announcement();
    if (running.call.op.kind == ReduceOp::premul_sum) mine.details.factor = running.call.op.factor;
    if (running.call.parts && !running.call.parts->receive.empty()) {
        std::uint64_t* const table = region_->parts(static_cast<int>(rank_), running.sequence);
        std::copy_n(running.call.parts->send.data(), ranks_, table);
        std::copy_n(running.call.parts->receive.data(), ranks_, table + ranks_);
    }
    // Others poll this line.
    mine.line.source = running.call.source;
    mine.line.signature = signature_of(running.call, running.sequence, offer);
}

// Every call begins with one phase, whatever it is; that is where the ranks' ideas of it are
// compared, before any rank reads a byte.
void ShmBackend::begin(Running& running) {
    running.first_phase = barrier_.arrive_and_wait(running.deadline, running);
    for (std::size_t i = 0; i < running.awaited.size(); i += cache_line) {
        __builtin_prefetch(running.awaited.data() + i);
    }
    compare_calls(running);
    if (running.call.op.kind == ReduceOp::premul_sum) read_factors(running);
}

// At once: a peer that is done may announce its next call while this rank takes its last chunk.
void ShmBackend::read_factors(const Running& running) {
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        const auto& announced = barrier_.announcement(static_cast<int>(peer), running.first_phase);
        factors_[peer] = announced.details.factor;
    }
}

void ShmBackend::compare_calls(const Running& running) {
    const auto line = [&](std::size_t rank) -> const PhaseLine& {
        return barrier_.announcement(static_cast<int>(rank), running.first_phase).line;
    };
    for (std::size_t peer = 1; peer < ranks_; ++peer) {
        if (same_call(line(0), line(peer))) continue;
        waiter_.abort(AbortReason::mismatch, static_cast<int>(peer));
        backends::CallHeader first = header_of(line(0));
        first.sequence = running.sequence;
        const backends::CallHeader other = header_of(line(peer));
        throw UsageError(backends::describe_difference(
            {waiter_.job_rank(0), first}, {waiter_.job_rank(static_cast<int>(peer)), other}));
    }
    if (running.call.parts && !running.call.parts->receive.empty()) compare_parts(running);
}

// All ranks look at all counts, so that all of them throw. Each is read once: what the call does
// with them later comes from here, and this rank's own from the call.
void ShmBackend::compare_parts(const Running& running) {
    const backends::Parts& mine = *running.call.parts;
    const std::size_t limit = PTRDIFF_MAX / running.element_bytes / ranks_;
    largest_part_ = 0;
    in_inputs_.assign(ranks_, 0);
    in_outputs_.assign(ranks_, 0);
    for (std::size_t from = 0; from < ranks_; ++from) {
        const std::uint64_t* const sent = region_->parts(static_cast<int>(from), running.sequence);
        for (std::size_t to = 0; to < ranks_; ++to) {
            const std::uint64_t* const received =
                region_->parts(static_cast<int>(to), running.sequence) + ranks_;
            const std::uint64_t gives = from == rank_ ? mine.send[to] : sent[to];
            const std::uint64_t takes = to == rank_ ? mine.receive[from] : received[from];
            if (gives != takes || gives > limit) {
                throw_other_parts(waiter_, running.sequence, {from, to}, {gives, takes});
            }
            largest_part_ = std::max<std::size_t>(largest_part_, gives);
            if (to < rank_) in_inputs_[from] += gives;
            if (from < rank_) in_outputs_[to] += gives;
        }
    }
}

// Announces where the memory of this rank lies that peers may touch.
Offer ShmBackend::offer_memory(Running& running, Role role, const Extents& bytes) {
    CallDetails& details = barrier_.next_announcement().details;
    const bool by_address = may_be_reached(bytes.part);
    Offer offer;
    running.stages = role != Role::takes;
    if (running.stages) {
        running.is_small = bytes.input <= tuning_.one_phase_bytes;
        offer.input = running.is_small
                          ? MemoryKind::ordinary
                          : locate({running.input(), bytes.input}, by_address, details.input);
        if (offer.input == MemoryKind::ordinary) return offer;
    }
    const bool in_place = running.output() == running.input() && bytes.output == bytes.input;
    if (role == Role::both && in_place) {
        details.output = details.input;
        offer.output = offer.input;
    } else if (role != Role::gives && bytes.output > tuning_.one_phase_bytes) {
        offer.output = locate({running.output(), bytes.output}, by_address, details.output);
        if (offer.output == MemoryKind::ordinary) offer.output = MemoryKind::none;
    }
    return offer;
}

MemoryKind ShmBackend::locate(std::span<const std::byte> memory, bool may_be_reached,
                              Location& place) {
    place = allocations_.locate(memory.data(), memory.size());
    if (place.allocation != 0) return MemoryKind::shared;
    if (!may_be_reached || !PeerMemory::can_be_reached(memory)) return MemoryKind::ordinary;
    place.offset = address_of(memory.data());
    return MemoryKind::reachable;
}

// Whether parts of that size are for reaching into each other's memory, and this group can.
bool ShmBackend::may_be_reached(std::size_t part_bytes) {
    return part_bytes > 0 && part_bytes >= tuning_.direct_bytes_min &&
           part_bytes <= tuning_.direct_bytes_max && barrier_.has_met() && peers_.all_reach();
}

ShmBackend::Path ShmBackend::path_of(const Running& running) const {
    bool direct = false, ordinary = false;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        const Offer offer = announced(running, peer).line.signature.offer;
        const auto is = [&](MemoryKind kind) { return offer.input == kind; };
        direct = direct || is(MemoryKind::reachable) || is(MemoryKind::shared);
        ordinary = ordinary || is(MemoryKind::ordinary);
    }
    if (!direct) return Path::staged;
    return ordinary ? Path::staged_after_all : Path::direct;
}

backends::Reduction ShmBackend::reduction(const Running& running) const {
    const bool scaled = running.call.op.kind == ReduceOp::premul_sum;
    return {running.call.dtype, running.call.op.kind,
            scaled ? std::span<const double>(factors_) : std::span<const double>()};
}

std::unique_ptr<backends::PendingTransfer> ShmBackend::start_transfer(
    const backends::Transfer& transfer) {
    if (transfer.direction == backends::Direction::send && !has_channels_) {
        region_->reserve_channels(static_cast<int>(rank_));
        has_channels_ = true;
    }
    return transfers_.start(transfer);
}

}  // namespace ddp::shm
