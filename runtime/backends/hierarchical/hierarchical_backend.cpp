#include "backends/hierarchical/hierarchical_backend.hpp"

#include "backends/gloo/slots.hpp"
#include "backends/hierarchical/data_schedule.hpp"
#include "backends/hierarchical/reduction_schedule.hpp"

#include <ddp/error.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace ddp::hierarchical {

using backends::Call;
using backends::Collective;
using gloo::WaitContext;

namespace {

// A transfer that knows whether there are others of the other kind: who waits for one kind does not
// hear of the other, so neither waits for long then.
class MixedTransfer : public backends::PendingTransfer {
public:
    MixedTransfer(std::unique_ptr<PendingTransfer> transfer,
                  std::shared_ptr<PendingTransfers> pending, bool is_local)
        : transfer_(std::move(transfer)),
          pending_(std::move(pending)),
          own_(is_local ? pending_->local : pending_->between_hosts),
          others_(is_local ? pending_->between_hosts : pending_->local) {
        ++own_;
    }
    ~MixedTransfer() override { --own_; }

    bool advance() override { return transfer_->advance(); }
    bool is_done() const override { return transfer_->is_done(); }
    const backends::Transfer& transfer() const override { return transfer_->transfer(); }
    void rest(std::uint64_t round) override { transfer_->rest(round); }
    void wait_a_little(const base::Deadline& deadline) override {
        constexpr int naps = 500;  // before a longer wait, which also looks for what has failed
        if (others_ == 0 || ++naps_ % naps == 0) return transfer_->wait_a_little(deadline);
        std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
    void give_up(const base::Deadline& deadline) override { transfer_->give_up(deadline); }

private:
    std::unique_ptr<PendingTransfer> transfer_;
    std::shared_ptr<PendingTransfers> pending_;
    std::atomic<int>& own_;
    std::atomic<int>& others_;
    int naps_ = 0;
};

}  // namespace

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

std::shared_ptr<void> HierarchicalBackend::provide_memory(const Call& call, std::uint64_t sequence,
                                                          const base::Deadline& deadline) {
    try {
        return GlooBackend::provide_memory(call, sequence, deadline);
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
    const bool is_local = layout_.is_here(static_cast<std::size_t>(transfer.peer));
    auto started = is_local ? LocalRanks::start_transfer(local_, transfer)
                            : GlooBackend::start_transfer(transfer);
    return std::make_unique<MixedTransfer>(std::move(started), pending_, is_local);
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
        gloo::MessageList messages(gloo::collective_slot);
        for (std::size_t host = 0; host < layout_.hosts(); ++host) {
            const RankRange there = layout_.host(host);
            if (host == layout_.my_host()) continue;
            messages.receive(there.first, all + there.first * bytes, there.count * bytes);
            messages.send(there.first, ours, here.count * bytes);
        }
        mesh().exchange(messages.all(), patience.of_hosts());
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
        case Collective::adopt:
            return;
    }
}

std::shared_ptr<void> HierarchicalBackend::provide_own(const Call& call,
                                                       const WaitContext& context) {
    return local_->provide_memory(call, Patience(context).of_ranks());
}

}  // namespace ddp::hierarchical
