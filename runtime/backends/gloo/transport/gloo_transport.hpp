// GlooTransport: Gloo's pairs as the transport. A thread of Gloo's moves the bytes, and a watchdog
// ends waits that Gloo would not.
#pragma once

#include "backends/gloo/make_gloo.hpp"
#include "backends/gloo/transport/health.hpp"
#include "backends/gloo/transport/pairs.hpp"
#include "backends/gloo/transport/transport.hpp"
#include "backends/gloo/transport/watchdog.hpp"

#include <functional>
#include <optional>

namespace ddp::gloo {

class GlooTransport : public Transport {
public:
    // Collective. `has_trouble` is called from other threads. Throws UsageError, TimeoutError,
    // BackendError.
    GlooTransport(const Group& group, const std::string& address, const base::Deadline& deadline,
                  std::function<bool()> has_trouble);

    const std::vector<PeerProcess>& processes() const override { return pairs_.processes(); }
    std::size_t long_message_bytes() const override { return 4 << 20; }
    void start(std::span<const Message> messages, Progress progress, Operations& started) override;
    std::optional<int> wait(const Operations& operations, const base::Deadline* deadline) override;

    bool is_troubled() noexcept override { return health_->is_troubled(); }
    std::vector<Gone> list_gone(int suspect) override { return health_->list_gone(suspect); }
    std::optional<AbortReason> wait_for_notice(int peer) noexcept override {
        return health_->wait_for_notice(peer);
    }
    void send_abort_notice(const AbortReason& reason) noexcept override {
        health_->send_abort_notice(reason);
    }
    void stop() noexcept override {
        health_->wait_for_answers();
        pairs_.close_all();
    }

private:
    Pairs pairs_;
    std::optional<Health> health_;
    std::optional<Watchdog> watchdog_;
};

}  // namespace ddp::gloo
