// What is known of a host's life: when it was heard last, and how often it was lost. Pure: the time
// is handed in.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace ddp::launcher {

struct MembershipRules {
    using Milliseconds = std::chrono::milliseconds;

    int min_hosts = 1;
    int max_hosts = 1;
    Milliseconds join_timeout{600'000};
    Milliseconds last_call{30'000};
    // Silence of a host's kernel, after which it is lost; also a lease, counted by its holder.
    Milliseconds node_timeout{5'000};
    Milliseconds stall_timeout{30'000};  // of an agent whose kernel answers
    Milliseconds say_silent_after{700};
    Milliseconds say_stalled_after{5'000};
    // Another host may take over: then nobody acts without a quorum.
    bool has_successors = false;

    // A job that needs all its hosts: the loss of one is a failure.
    bool is_static() const { return min_hosts == max_hosts; }
    // How long a coordinator with successors grants leases after it has last had a quorum.
    Milliseconds grant_window() const { return std::max(node_timeout / 2, Milliseconds{1'000}); }
    // Within this a successor has found a quorum, or the job ends for those who look for one.
    Milliseconds time_to_succeed() const {
        return std::max(4 * node_timeout, Milliseconds{10'000});
    }
};

// Contact with one agent.
class HostContact {
public:
    using Time = std::chrono::steady_clock::time_point;

    explicit HostContact(Time now) : heard_(now), acknowledged_(now) {}

    // The agent itself spoke; its kernel acknowledged what was sent.
    void hear(Time now) { heard_ = acknowledged_ = now; }
    void acknowledge(Time at) { acknowledged_ = at > acknowledged_ ? at : acknowledged_; }
    // Its lease ends at most node_timeout later.
    Time heard() const { return heard_; }

    enum class News : std::uint8_t { none, silent, stalled, answers_again, lost };
    // What has changed since it was asked last.
    News look(const MembershipRules& rules, Time now);
    // After News::lost.
    std::string why_lost(const MembershipRules& rules, Time now) const;
    // When look() may have news, after `now`.
    std::optional<Time> next(const MembershipRules& rules, Time now) const;

private:
    Time heard_;
    Time acknowledged_;
    News said_ = News::none;
};

// How often hosts were lost, by name. One that was lost again and again waits before it may join.
class HostLosses {
public:
    using Time = HostContact::Time;

    void note(const std::string& host, Time now);
    // Times in a row.
    int count(const std::string& host) const;
    // In the past where nothing keeps it.
    Time may_join_at(const std::string& host) const;

private:
    struct Losses {
        int count = 0;  // each within ten minutes of the one before
        Time last{};
    };
    std::map<std::string, Losses> losses_;
};

// "0.7 s", "30 s"
std::string in_seconds(std::chrono::milliseconds time);

}  // namespace ddp::launcher
