#include "backends/hierarchical/hierarchical_backend.hpp"

#include "backends/gloo/slots.hpp"
#include "backends/hierarchical/data_schedule.hpp"
#include "backends/hierarchical/reduction_schedule.hpp"

#include <ddp/error.hpp>

#include <cstring>
#include <utility>

namespace ddp::hierarchical {

using backends::Call;
using backends::Collective;
using gloo::Message;
using gloo::WaitContext;

HierarchicalBackend::HierarchicalBackend(std::shared_ptr<gloo::Mesh> mesh,
                                         std::unique_ptr<backends::Backend> local,
                                         HostLayout layout)
    : GlooBackend(std::move(mesh)),
      layout_(std::move(layout)),
      local_(std::make_shared<LocalRanks>(std::move(local), layout_.mine(), shared_mesh())) {}

// The mesh tells the others why before the ranks of this host hear that it is over.
void HierarchicalBackend::run(const Call& call, std::uint64_t sequence,
                              const base::Deadline& deadline) {
    try {
        GlooBackend::run(call, sequence, deadline);
    } catch (...) {
        fail();
        throw;
    }
}

std::shared_ptr<void> HierarchicalBackend::allocate(std::size_t bytes, std::uint64_t sequence,
                                                    const base::Deadline& deadline,
                                                    const CallSite& site) {
    try {
        return GlooBackend::allocate(bytes, sequence, deadline, site);
    } catch (const SystemError&) {
        throw;
    } catch (...) {
        fail();
        throw;
    }
}

void HierarchicalBackend::fail() noexcept {
    GlooBackend::fail();
    local_->fail();
}

std::exception_ptr HierarchicalBackend::find_trouble(const std::string& during) noexcept {
    if (std::exception_ptr trouble = GlooBackend::find_trouble(during)) return trouble;
    return local_->find_trouble(during);
}

void HierarchicalBackend::pass_on_trouble() noexcept {
    GlooBackend::pass_on_trouble();
    local_->pass_on_trouble();
}

std::unique_ptr<backends::PendingTransfer> HierarchicalBackend::start_transfer(
    const backends::Transfer& transfer) {
    if (!layout_.is_here(static_cast<std::size_t>(transfer.peer))) {
        return GlooBackend::start_transfer(transfer);
    }
    return LocalRanks::start_transfer(local_, transfer);
}

// The first rank of each host speaks for it. A rank that does not come is missed first on its own
// host: the others wait longer, and are told.
void HierarchicalBackend::exchange_all(const void* own, std::size_t bytes, std::byte* all,
                                       const WaitContext& context) {
    const RankRange here = layout_.mine();
    std::byte* const ours = all + here.first * bytes;
    local_->run({.kind = Collective::all_gather, .elements = bytes, .input = own, .output = ours},
                context);
    const Patience patience(context);
    if (layout_.my_index() == 0) {
        std::vector<Message> messages;
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            const RankRange there = layout_.host(host);
            if (host == layout_.my_host()) continue;
            const int to = static_cast<int>(there.first);
            messages.push_back({gloo::Direction::receive, to, gloo::collective_slot,
                                all + there.first * bytes, there.count * bytes});
            messages.push_back(
                {gloo::Direction::send, to, gloo::collective_slot, ours, here.count * bytes});
        }
        mesh().exchange(messages, patience.of_hosts());
    }
    if (here.count == 1 || layout_.hosts() == 1) return;
    local_->run({.kind = Collective::broadcast,
                 .elements = layout_.ranks() * bytes,
                 .input = all,
                 .output = all},
                patience.of_ranks());
}

void HierarchicalBackend::move(const Call& call, std::span<const double> factors,
                               const WaitContext& context) {
    const Patience patience(context);
    const Places places{mesh(), *local_, layout_, patience};
    switch (call.kind) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::reduce_scatter:
            return ReductionSchedule(places, call, factors, staging_).run();
        case Collective::broadcast:
        case Collective::all_gather:
        case Collective::gather:
        case Collective::scatter:
        case Collective::all_to_all:
            return DataSchedule(places, call).run();
        case Collective::barrier:
        case Collective::allocate:
            return;
    }
}

std::shared_ptr<void> HierarchicalBackend::allocate_own(std::size_t bytes,
                                                        const WaitContext& context) {
    return local_->allocate(bytes, Patience(context).of_ranks());
}

}  // namespace ddp::hierarchical
