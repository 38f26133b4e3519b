// The ranks of one group, connected each to each by Gloo: messages between them, and one common
// end. Whatever goes wrong on any rank becomes one verdict, which that rank tells the others; each
// of them throws it from what it waits for, at once or from its next call.
#pragma once

#include "backends/gloo/abort_reason.hpp"
#include "backends/gloo/health.hpp"
#include "backends/gloo/make_gloo.hpp"
#include "backends/gloo/pairs.hpp"
#include "backends/gloo/watchdog.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::gloo {

// One message between this rank and another. Both sides know the size; zero bytes are not sent.
struct Message {
    Way way = Way::send;
    int peer = 0;
    std::uint64_t slot = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
};

// What messages are for: in errors, and by when.
struct Errand {
    std::string what;
    const base::Deadline* deadline = nullptr;  // null: none
};

class Mesh {
public:
    // Collective. Throws UsageError, TimeoutError, BackendError.
    Mesh(const Group& group, const std::string& address, const base::Deadline& deadline);
    // Tells the others that this rank leaves in the regular way, unless the group has failed.
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    int rank() const { return pairs_.rank(); }
    int ranks() const { return pairs_.size(); }

    // All at once; returns when all are done and their memory is free. Throws the verdict. Any
    // thread; two threads use different slots.
    void exchange(std::span<const Message> messages, const Errand& errand);

    // Ends the group on all ranks, unless it has ended before. Any thread.
    void end(const Verdict& verdict) noexcept;
    // The same, and throws the verdict that ended it.
    [[noreturn]] void fail(const Verdict& verdict);

    // The verdict, or what it would be, without ending the group; also of a peer that has left.
    // Null: there is nothing. Any thread; never blocks.
    std::exception_ptr find_trouble(const std::string& during) noexcept;
    void pass_on_trouble() noexcept;  // ends the group because of it

    int job_rank(int peer) const;
    // "rank 1 (pid 4711 on host b)"
    std::string name_of(int peer) const;

private:
    struct Flight;
    bool is_troubled() noexcept;
    int rank_that_agent_blames() const;  // -1: none
    void post(const Message& message, Flight& flight);
    Verdict judge(int suspect, const Errand& errand, const std::string& gloo_says);
    std::optional<Verdict> find_words(const std::vector<Health::Gone>& gone, int suspect,
                                      const Errand& errand) const;
    Verdict judge_gone(const std::vector<Health::Gone>& gone, const std::string& what) const;
    std::optional<Verdict> judge_from_afar(const std::string& during);
    void follow_suspicion();
    [[noreturn]] void raise();

    std::vector<int> job_ranks_;
    const std::atomic<std::uint32_t>* agent_abort_;
    Pairs pairs_;
    std::optional<Health> health_;
    std::mutex mutex_;
    std::optional<Verdict> verdict_;
    std::atomic<bool> ended_ = false;
    std::optional<Watch> watch_;
};

}  // namespace ddp::gloo
