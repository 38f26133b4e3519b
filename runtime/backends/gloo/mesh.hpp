// Mesh: the ranks of one group, connected each to each by a Transport: messages between them, and
// one common end. Invariant: whatever goes wrong on any rank becomes one AbortReason, which that
// rank sends to the others; each rank throws it from what it waits for, at once or from its next
// call.
#pragma once

#include "backends/gloo/abort_reason.hpp"
#include "backends/gloo/make_gloo.hpp"
#include "backends/gloo/message.hpp"
#include "backends/gloo/transport/connect.hpp"
#include "backends/gloo/transport/transport.hpp"
#include "base/unique_fd.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::gloo {

// What messages are for: in errors, and by when.
struct WaitContext {
    std::string what;
    const base::Deadline* deadline = nullptr;  // null: none
};

class Mesh;

// Messages under way, all at once. They are waited for by the thread that started them, or the
// group ends. Two threads use different slots.
class Exchange {
public:
    explicit Exchange(Mesh& mesh) : mesh_(&mesh) {}
    ~Exchange();
    Exchange(Exchange&&) noexcept = default;
    // To one that has been waited for, or never started.
    Exchange& operator=(Exchange&&) noexcept = default;

    // Does not block. Once. Throws the reason that ended the group.
    void start(std::span<const Message> messages, const WaitContext& context,
               Progress progress = Progress::in_background);
    // Returns when all are done and their memory is free. Throws the reason.
    void wait(const WaitContext& context);

private:
    friend class Mesh;
    Mesh* mesh_;
    Operations operations_;  // not done
};

class Mesh {
public:
    // Collective. Throws UsageError, TimeoutError, BackendError.
    Mesh(const Group& group, const Network& network, const base::Deadline& deadline);
    // Tells the others that this rank leaves in the regular way, unless the group has failed.
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    std::size_t long_message_bytes() const { return transport_->long_message_bytes(); }

    // An Exchange from its start to its end.
    void exchange(std::span<const Message> messages, const WaitContext& context);

    // Ends the group on all ranks, unless it has ended before. Any thread.
    void end(const AbortReason& reason) noexcept;
    // The same, and throws the reason that ended it.
    [[noreturn]] void fail(const AbortReason& reason);
    // The same for what was found by other means than this mesh: where another rank has told of
    // what made it fail, that counts. `teller` is waited for, a moment: it has failed, or died
    // without a word; -1: nobody.
    [[noreturn]] void fail_unless_told(const AbortReason& reason, int teller,
                                       const WaitContext& context);

    // The reason, or what it would be, without ending the group; also of a peer that has left.
    // Null: there is nothing. Any thread; takes a moment where a peer has gone without a word.
    std::exception_ptr find_trouble(const std::string& during) noexcept;
    void pass_on_trouble() noexcept;  // ends the group because of it

    int job_rank(int peer) const;
    int rank_of_job_rank(int job_rank) const;  // -1: not in the group
    // "rank 1 (pid 4711 on host b)"
    std::string name_of(int peer) const;

private:
    friend class Exchange;
    bool is_troubled() noexcept;
    int rank_that_agent_blames() const;  // -1: none
    AbortReason diagnose(int suspect, const WaitContext& context, const std::string& library_says);
    std::optional<AbortReason> find_notice(const std::vector<Transport::Gone>& gone, int suspect,
                                           const WaitContext& context) const;
    int who_died(const std::vector<Transport::Gone>& gone) const;  // -1: all that went said why
    AbortReason diagnose_gone(const std::vector<Transport::Gone>& gone,
                              const std::string& what) const;
    std::optional<AbortReason> diagnose_without_waiting(const std::string& during);
    void adopt_reason_of_culprit();
    [[noreturn]] void raise();

    int rank_;
    int ranks_;
    std::vector<int> job_ranks_;
    const std::atomic<std::uint32_t>* agent_abort_;
    std::mutex mutex_;
    std::optional<AbortReason> abort_reason_;
    std::atomic<bool> ended_ = false;
    std::vector<base::UniqueFd> peers_here_;  // by rank: pidfds of those on this host
    std::unique_ptr<Transport> transport_;    // its threads call this mesh
};

// Collective: connects each rank to each, through the network that the environment wants. Throws as
// Mesh.
std::shared_ptr<Mesh> connect_mesh(const Group& group, const base::Deadline& deadline);

}  // namespace ddp::gloo
