#include "backends/gloo/gloo_backend.hpp"

#include "backends/gloo/schedule.hpp"
#include "backends/gloo/slots.hpp"

#include <ddp/error.hpp>

#include <cstring>

namespace ddp::gloo {
namespace {

using backends::Call;
using backends::Collective;

// Whether all data of the call is in the openings.
bool is_small(const Call& call) {
    switch (call.kind) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::broadcast:
        case Collective::gather:
            return call.bytes() <= sizeof(CallOpening::data);
        case Collective::all_gather:
            return !call.parts && call.bytes() <= sizeof(CallOpening::data);
        case Collective::reduce_scatter:
        case Collective::scatter:
        case Collective::all_to_all:
        case Collective::allocate:
        case Collective::adopt:
            return false;
        case Collective::barrier:
            return true;
    }
    return false;
}

CallOpening opening_of(const Call& call, const backends::CallHeader& header) {
    CallOpening opening{header, {}};
    const bool has_data = is_small(call) && call.input != nullptr;
    if (has_data) backends::copy(opening.data.data(), call.input, call.bytes());
    return opening;
}

}  // namespace

GlooBackend::GlooBackend(std::shared_ptr<Mesh> mesh)
    : mesh_(std::move(mesh)),
      rank_(mesh_ ? static_cast<std::size_t>(mesh_->rank()) : 0),
      ranks_(mesh_ ? static_cast<std::size_t>(mesh_->ranks()) : 1),
      openings_(ranks_),
      headers_(ranks_) {}

void GlooBackend::exchange_all(const void* own, std::size_t bytes, std::byte* all,
                               const WaitContext& context) {
    std::byte* const mine = all + rank_ * bytes;
    std::memcpy(mine, own, bytes);
    std::vector<Message> messages;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        const int to = static_cast<int>(peer);
        messages.push_back({Direction::receive, to, collective_slot, all + peer * bytes, bytes});
        messages.push_back({Direction::send, to, collective_slot, mine, bytes});
    }
    if (mesh_) mesh_->exchange(messages, context);
}

std::vector<std::uint64_t> GlooBackend::exchange_numbers(const std::vector<std::uint64_t>& own,
                                                         const WaitContext& context) {
    std::vector<std::uint64_t> all(ranks_ * own.size());
    exchange_all(own.data(), own.size() * sizeof own[0], reinterpret_cast<std::byte*>(all.data()),
                 context);
    return all;
}

void GlooBackend::compare_calls(const CallOpening& own, const WaitContext& context) {
    exchange_all(&own, sizeof own, reinterpret_cast<std::byte*>(openings_.data()), context);
    for (std::size_t rank = 0; rank < ranks_; ++rank) headers_[rank] = openings_[rank].header;
    const int other = backends::find_different_call(headers_);
    if (other < 0) return;
    const auto call_of = [&](int rank) {
        const auto& header = headers_[static_cast<std::size_t>(rank)];
        return backends::NamedCall{mesh_->job_rank(rank), header};
    };
    mesh_->fail(
        {AbortKind::misused, other, backends::describe_difference(call_of(0), call_of(other))});
}

void GlooBackend::finish_small(const Call& call, std::span<const double> factors) {
    const auto root = static_cast<std::size_t>(call.root);
    auto* const output = static_cast<std::byte*>(call.output);
    const std::size_t bytes = call.bytes();
    if (bytes == 0) return;
    switch (call.kind) {
        case Collective::broadcast:
            return backends::copy(output, openings_[root].data.data(), bytes);
        case Collective::gather:
        case Collective::reduce:
            if (rank_ != root) return;
            break;
        default:
            break;
    }
    std::vector<const std::byte*> inputs;
    for (const CallOpening& opening : openings_) inputs.push_back(opening.data.data());
    if (call.kind == Collective::all_reduce || call.kind == Collective::reduce) {
        return backends::reduce(inputs, {&output, 1}, call.elements,
                                {call.dtype, call.op.kind, factors});
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        std::memcpy(output + rank * bytes, inputs[rank], bytes);
    }
}

// Of an uneven all_to_all: all ranks see all counts, so all find the same fault.
void GlooBackend::compare_parts(const backends::Parts& parts, const WaitContext& context) {
    std::vector<std::uint64_t> own;
    for (const auto* counts : {&parts.send, &parts.receive}) {
        for (std::size_t peer = 0; peer < ranks_; ++peer) own.push_back((*counts)[peer]);
    }
    const auto name = [&](std::size_t rank) {
        const int number = static_cast<int>(rank);
        return std::to_string(mesh_ ? mesh_->job_rank(number) : number);
    };
    const std::vector<std::uint64_t> all = exchange_numbers(own, context);
    for (std::size_t from = 0; from < ranks_; ++from) {
        for (std::size_t to = 0; to < ranks_; ++to) {
            const std::uint64_t sent = all[from * 2 * ranks_ + to];
            const std::uint64_t received = all[to * 2 * ranks_ + ranks_ + from];
            if (sent == received) continue;
            const std::string what = context.what + ": rank " + name(from) + " sends " +
                                     std::to_string(sent) + " elements to rank " + name(to) +
                                     ", which receives " + std::to_string(received);
            if (!mesh_) throw UsageError(what);
            mesh_->fail({AbortKind::misused, static_cast<int>(from), what});
        }
    }
}

// The reason why a call failed goes to all ranks as it is; each rank adds its own line.
void GlooBackend::run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) {
    try {
        run_together(call, sequence, deadline);
    } catch (...) {
        backends::rethrow_at(call.site_in_program());
    }
}

void GlooBackend::run_together(const Call& call, std::uint64_t sequence,
                               const base::Deadline& deadline) {
    const backends::CallHeader own = backends::header_of(call, sequence);
    const WaitContext context{backends::describe(own) + ", operation " + std::to_string(sequence),
                              &deadline};
    compare_calls(opening_of(call, own), context);
    if (call.kind == Collective::all_to_all && call.parts) compare_parts(*call.parts, context);
    std::vector<double> factors;
    if (call.op.kind == ReduceOp::premul_sum) {
        for (const backends::CallHeader& header : headers_) factors.push_back(header.factor);
    }
    if (is_small(call)) return finish_small(call, factors);
    move(call, factors, context);
}

void GlooBackend::move(const Call& call, std::span<const double> factors,
                       const WaitContext& context) {
    Schedule(mesh_.get(), call, factors, context, staging_).run();
}

// No rank can reach another's memory.
std::shared_ptr<void> GlooBackend::provide_own(const Call& call, const WaitContext&) {
    return call.kind == Collective::adopt ? nullptr : backends::allocate_private(call.bytes());
}

void GlooBackend::fail() noexcept {
    if (!mesh_) return;
    try {
        mesh_->end({AbortKind::peer_died, mesh_->rank(),
                    "gloo: " + mesh_->name_of(mesh_->rank()) + " failed in an operation"});
    } catch (...) {  // no memory for a notice: the others find it dead, or at their deadline
    }
}

std::shared_ptr<void> GlooBackend::provide_memory(const Call& call, std::uint64_t sequence,
                                                  const base::Deadline& deadline) {
    try {
        return provide_together(call, sequence, deadline);
    } catch (...) {
        backends::rethrow_at(call.site);
    }
}

std::shared_ptr<void> GlooBackend::provide_together(const Call& call, std::uint64_t sequence,
                                                    const base::Deadline& deadline) {
    const WaitContext context{backends::describe(call) + ", operation " + std::to_string(sequence),
                              &deadline};
    compare_calls(opening_of(call, backends::header_of(call, sequence)), context);
    std::shared_ptr<void> memory;
    std::uint64_t errno_of_own = 0;
    try {
        memory = provide_own(call, context);
    } catch (const SystemError& error) {
        errno_of_own = static_cast<std::uint64_t>(error.code());
    }
    const std::vector<std::uint64_t> all = exchange_numbers({errno_of_own}, context);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (all[rank] == 0) continue;
        const int failed = static_cast<int>(rank);
        throw SystemError("gloo: " + backends::describe(call) + " on rank " +
                              std::to_string(mesh_ ? mesh_->job_rank(failed) : failed),
                          static_cast<int>(all[rank]));
    }
    return memory;
}

std::unique_ptr<backends::PendingTransfer> GlooBackend::start_transfer(
    const backends::Transfer& transfer) {
    if (!mesh_) throw UsageError(backends::describe(transfer) + ": the group has one rank");
    auto shared = std::make_shared<QueuedTransfer>(transfer, completions_);
    const std::lock_guard lock(queues_mutex_);
    std::unique_ptr<PeerQueue>& queue = queues_[{transfer.direction, transfer.peer}];
    if (!queue) queue = std::make_unique<PeerQueue>(*mesh_);
    auto pending = std::make_unique<PendingQueuedTransfer>(mesh_, shared);
    queue->start(std::move(shared));
    return pending;
}

}  // namespace ddp::gloo
