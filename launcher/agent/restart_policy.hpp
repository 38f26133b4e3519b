// Whether a failed attempt is worth another one, and after which pause. Pure: what happened is
// handed in.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ddp::launcher {

struct RestartRule {
    int max_restarts = 0;
    std::chrono::milliseconds delay{0};           // before the first restart; doubles each time
    std::chrono::seconds same_failure_window{0};  // 0: always restart
};

// How an attempt failed.
struct AttemptFailure {
    int rank = 0;  // who was to blame; -1: nobody, a host was lost
    int exit_code = 1;
    std::chrono::milliseconds lasted{0};
};

class RestartPolicy {
public:
    static constexpr std::chrono::milliseconds longest_delay{5 * 60 * 1000};

    explicit RestartPolicy(const RestartRule& rule) : rule_(rule) {}

    struct Decision {
        bool restart = false;
        std::chrono::milliseconds delay{0};
        std::string text;  // for the user; empty when there is nothing to say
    };
    // After each failed attempt, once.
    Decision decide(const AttemptFailure& failure);

    int restarts() const { return restarts_; }
    // Somebody else has decided on so many.
    void go_on_after(int restarts) { restarts_ = restarts; }

private:
    RestartRule rule_;
    int restarts_ = 0;
    std::optional<AttemptFailure> last_;
};

}  // namespace ddp::launcher
