// Collectives and transfers between hosts, over TCP. Gloo moves the messages; the algorithms
// (which rank sends what to which) are ddp's: Gloo's own add in the order of their rings
// and keep half types in halves, while here every reduction goes through backends::reduce and so
// gives the bits that shm gives. Each rank exchanges with each other one directly: the bytes of a
// ring, in two steps instead of 2(N-1).
//
// Each call begins with an exchange of CallHeaders between all ranks, which is also the barrier.
#pragma once

#include "backends/backend.hpp"
#include "backends/call_header.hpp"
#include "backends/gloo/mesh.hpp"
#include "backends/gloo/peer_queue.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp::gloo {

class GlooBackend : public backends::Backend {
public:
    // A world of one has no mesh.
    explicit GlooBackend(std::shared_ptr<Mesh> mesh);

    ddp::Backend kind() const override { return ddp::Backend::gloo; }
    void run(const backends::Call& call, std::uint64_t sequence,
             const base::Deadline& deadline) override;
    std::shared_ptr<void> allocate(std::size_t bytes, std::uint64_t sequence,
                                   const base::Deadline& deadline, const CallSite& site) override;
    void fail() noexcept override;
    std::exception_ptr find_trouble(const std::string& during) noexcept override {
        return mesh_ ? mesh_->find_trouble(during) : nullptr;
    }
    void pass_on_trouble() noexcept override {
        if (mesh_) mesh_->pass_on_trouble();
    }
    std::unique_ptr<backends::PendingTransfer> start_transfer(
        const backends::Transfer& transfer) override;

private:
    using PeerQueueKey = std::pair<backends::Direction, int>;  // and the peer
    void run_together(const backends::Call& call, std::uint64_t sequence,
                      const base::Deadline& deadline);
    std::shared_ptr<void> allocate_together(const backends::Call& call, std::uint64_t sequence,
                                            const base::Deadline& deadline);
    void compare_calls(const backends::CallHeader& own, const WaitContext& context);
    void compare_parts(const backends::Parts& parts, const WaitContext& context);
    // Every rank's `own`, by rank.
    template <class T>
    void exchange_all(const T* own, std::size_t count, std::vector<T>& all,
                      const WaitContext& context);

    std::shared_ptr<Mesh> mesh_;
    std::size_t rank_;
    std::size_t ranks_;
    std::vector<backends::CallHeader> headers_;  // of the current call, by rank
    std::vector<std::byte> staging_;             // of the schedules
    std::shared_ptr<CompletionEvents> completions_ = std::make_shared<CompletionEvents>();
    std::mutex queues_mutex_;
    std::map<PeerQueueKey, std::unique_ptr<PeerQueue>> queues_;
};

}  // namespace ddp::gloo
