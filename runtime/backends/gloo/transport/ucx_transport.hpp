// UcxTransport: UCX as the transport: an endpoint for each peer, and tags for slots. Invariant: a
// wait is over only when what this rank has sent is with the kernel.
#pragma once

#include "backends/gloo/transport/transport.hpp"
#include "backends/gloo/transport/ucx_progress.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::gloo {

class UcxTransport : public Transport {
public:
    // Not connected. `has_trouble` is called from threads that wait.
    UcxTransport(int rank, std::vector<PeerProcess> processes, std::unique_ptr<UcxWorker> worker,
                 std::function<bool()> has_trouble);
    ~UcxTransport() override;

    // Collective; once. `addresses`: of UcxWorkers, by rank. Throws BackendError that names a rank.
    void connect(const std::vector<std::string>& addresses, const base::Deadline& deadline);

    const std::vector<PeerProcess>& processes() const override { return processes_; }
    std::size_t long_message_bytes() const override { return 256 << 10; }
    void start(std::span<const Message> messages, Progress progress, Operations& started) override;
    std::optional<int> wait(const Operations& operations, const base::Deadline* deadline) override;
    bool is_troubled() noexcept override;
    std::vector<Gone> list_gone(int suspect) override;
    std::optional<AbortReason> wait_for_notice(int peer) noexcept override;
    void send_abort_notice(const AbortReason& reason) noexcept override;
    void stop() noexcept override;

private:
    using Lock = UcxProgress::Lock;
    using Clock = UcxProgress::Clock;
    struct Peer {
        UcxTransport* transport = nullptr;
        ucp_ep_h endpoint = nullptr;
        bool failed = false;  // its connection gave an error
        AbortNotice received{};
        void* notice_request = nullptr;
        bool gone = false;
        std::optional<AbortReason> notice;
    };

    void say_hello(std::uint64_t slot, const base::Deadline& deadline);
    [[noreturn]] void refuse(int peer, const std::string& reason) const;
    void open_endpoint(int peer, const std::string& address);
    void expect_notice(int peer);
    void look_for_news();
    int size() const { return static_cast<int>(peers_.size()); }
    Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

    void* post(const Message& message);
    void* throw_if_error(int peer, void* request) const;
    void advance_all(Lock& held);
    bool has_trouble_elsewhere(Lock& held);
    bool go_on(Lock& held, const base::Deadline* deadline, Clock::time_point& next_look);
    void finish_all(Lock& held, std::vector<void*>& requests);

    int rank_;
    std::vector<PeerProcess> processes_;
    std::function<bool()> has_trouble_;
    std::vector<Peer> peers_;  // by rank; never resized: UCX points into it
    AbortNotice own_notice_{};
    bool has_news_ = false;  // of peers that are gone
    bool troubled_ = false;  // one is that has not left in the regular way
    bool closed_ = false;
    UcxProgress progress_;  // ends first: what is above is UCX's until then
};

}  // namespace ddp::gloo
