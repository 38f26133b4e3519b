// Collectives and transfers between hosts, over TCP. Gloo moves the messages; the algorithms
// (which rank sends what to which) are ddp's: Gloo's own add in the order of their rings
// and keep half types in halves, while here every reduction goes through backends::reduce and so
// gives the bits that shm gives. Each rank exchanges with each other one directly: the bytes of a
// ring, in two steps instead of 2(N-1).
//
// Each call begins with an exchange of CallOpenings between all ranks, which is also the barrier; a
// small call ends with it.
#pragma once

#include "backends/backend.hpp"
#include "backends/call_header.hpp"
#include "backends/gloo/mesh.hpp"
#include "backends/gloo/peer_queue.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace ddp::gloo {

// What each rank tells each other first: its call, and its data where they are few.
struct CallOpening {
    backends::CallHeader header;
    std::array<std::byte, 208> data;
};
static_assert(sizeof(CallOpening) == 256);

// The steps that differ between hosts and ranks are virtual (hierarchical/).
class GlooBackend : public backends::Backend {
public:
    // A world of one has no mesh.
    explicit GlooBackend(std::shared_ptr<Mesh> mesh);

    ddp::Backend kind() const override { return ddp::Backend::gloo; }
    void run(const backends::Call& call, std::uint64_t sequence,
             const base::Deadline& deadline) override;
    std::shared_ptr<void> provide_memory(const backends::Call& call, std::uint64_t sequence,
                                         const base::Deadline& deadline) override;
    void fail() noexcept override;
    std::exception_ptr find_trouble(const std::string& during) noexcept override {
        return mesh_ ? mesh_->find_trouble(during) : nullptr;
    }
    void pass_on_trouble() noexcept override {
        if (mesh_) mesh_->pass_on_trouble();
    }
    std::unique_ptr<backends::PendingTransfer> start_transfer(
        const backends::Transfer& transfer) override;

protected:
    // `own` of each rank, by rank, at `all`: the same number of bytes on all of them.
    virtual void exchange_all(const void* own, std::size_t bytes, std::byte* all,
                              const WaitContext& context);
    // The data of a call that all ranks call alike. `factors`: of premul_sum, by rank.
    virtual void move(const backends::Call& call, std::span<const double> factors,
                      const WaitContext& context);
    // What provide_memory() gives this rank. Throws SystemError.
    virtual std::shared_ptr<void> provide_own(const backends::Call& call,
                                              const WaitContext& context);

    Mesh& mesh() { return *mesh_; }  // not in a world of one
    const std::shared_ptr<Mesh>& shared_mesh() const { return mesh_; }

private:
    using PeerQueueKey = std::pair<backends::Direction, int>;  // and the peer
    void run_together(const backends::Call& call, std::uint64_t sequence,
                      const base::Deadline& deadline);
    std::shared_ptr<void> provide_together(const backends::Call& call, std::uint64_t sequence,
                                           const base::Deadline& deadline);
    void compare_calls(const CallOpening& own, const WaitContext& context);
    void finish_small(const backends::Call& call, std::span<const double> factors);
    void compare_parts(const backends::Parts& parts, const WaitContext& context);
    std::vector<std::uint64_t> exchange_numbers(const std::vector<std::uint64_t>& own,
                                                const WaitContext& context);

    std::shared_ptr<Mesh> mesh_;
    std::size_t rank_;
    std::size_t ranks_;
    std::vector<CallOpening> openings_;          // of the current call, by rank
    std::vector<backends::CallHeader> headers_;  // theirs
    std::vector<std::byte> staging_;             // of the schedules
    std::shared_ptr<CompletionEvents> completions_ = std::make_shared<CompletionEvents>();
    std::mutex queues_mutex_;
    std::map<PeerQueueKey, std::unique_ptr<PeerQueue>> queues_;
};

}  // namespace ddp::gloo
