// LocalRanks: the ranks of this host among themselves, over a backend of their own. Invariant: what
// ends that backend ends the group on all hosts, with what caused it as the reason.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/mesh.hpp"
#include "backends/hierarchical/host_layout.hpp"

#include <exception>
#include <memory>
#include <string>

namespace ddp::hierarchical {

class LocalRanks {
public:
    // `backend`: of `ranks` of the group, which are numbered from 0 there.
    LocalRanks(std::unique_ptr<backends::Backend> backend, RankRange ranks,
               std::shared_ptr<gloo::Mesh> mesh);

    // A step of the call that `context` is of, in which the roots and parts are of local ranks.
    // Throws as Mesh: the reason that ended the group; or what failed on this rank alone.
    void run(const backends::Call& step, const gloo::WaitContext& context);
    // Throws SystemError, too.
    std::shared_ptr<void> provide_memory(const backends::Call& call,
                                         const gloo::WaitContext& context);
    // To or from a rank of this host, by its number in the group.
    static std::unique_ptr<backends::PendingTransfer> start_transfer(
        std::shared_ptr<LocalRanks> self, const backends::Transfer& transfer);

    // The group has ended, or ends because of this rank: who waits here must hear of it.
    void fail() noexcept { backend_->fail(); }
    std::exception_ptr find_trouble(const std::string& during) noexcept {
        return backend_->find_trouble(during);
    }
    void pass_on_trouble() noexcept { backend_->pass_on_trouble(); }

private:
    friend class LocalTransfer;
    // Whether two calls that do not fit were found by this rank; steps always fit.
    enum class Found { here, elsewhere };
    // In a catch block: what the backend has thrown.
    [[noreturn]] void end_group(const gloo::WaitContext& context, Found mismatches);
    void wait_for_word(const gloo::WaitContext& context);

    std::unique_ptr<backends::Backend> backend_;
    RankRange ranks_;
    std::shared_ptr<gloo::Mesh> mesh_;
    std::uint64_t sequence_ = 0;  // of steps
};

}  // namespace ddp::hierarchical
