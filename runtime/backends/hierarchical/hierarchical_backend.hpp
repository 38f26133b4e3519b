// Collectives of ranks that share hosts: shared memory among the ranks of a host, and between hosts
// each byte once for each host that needs it, over the connections of all ranks. The same bits as
// on one host: a host adds the subtrees of the balanced tree that are all its own, and only their
// sums travel. protocol.md tells how.
#pragma once

#include "backends/gloo/gloo_backend.hpp"
#include "backends/hierarchical/host_layout.hpp"
#include "backends/hierarchical/local_ranks.hpp"
#include "backends/hierarchical/staging.hpp"

#include <atomic>
#include <memory>

namespace ddp::hierarchical {

// How many transfers are under way.
struct PendingTransfers {
    std::atomic<int> local = 0;
    std::atomic<int> between_hosts = 0;
};

class HierarchicalBackend : public gloo::GlooBackend {
public:
    HierarchicalBackend(std::shared_ptr<gloo::Mesh> mesh, std::unique_ptr<backends::Backend> local,
                        HostLayout layout);

    ddp::Backend kind() const override { return ddp::Backend::hierarchical; }
    void run(const backends::Call& call, std::uint64_t sequence,
             const base::Deadline& deadline) override;
    std::shared_ptr<void> provide_memory(const backends::Call& call, std::uint64_t sequence,
                                         const base::Deadline& deadline) override;
    void fail() noexcept override;
    std::exception_ptr find_trouble(const std::string& during) noexcept override;
    void pass_on_trouble() noexcept override;
    std::unique_ptr<backends::PendingTransfer> start_transfer(
        const backends::Transfer& transfer) override;

protected:
    void exchange_all(const void* own, std::size_t bytes, std::byte* all,
                      const gloo::WaitContext& context) override;
    void move(const backends::Call& call, std::span<const double> factors,
              const gloo::WaitContext& context) override;
    std::shared_ptr<void> provide_own(const backends::Call& call,
                                      const gloo::WaitContext& context) override;

private:
    HostLayout layout_;
    std::shared_ptr<LocalRanks> local_;
    Staging staging_;
    std::shared_ptr<PendingTransfers> pending_ = std::make_shared<PendingTransfers>();
};

}  // namespace ddp::hierarchical
