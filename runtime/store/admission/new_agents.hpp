// NewAgents: connections of agents, from their first bytes to the end of that event of the server.
// Then the server has nothing in hand, so that whoever takes them may call it.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.hpp"

namespace ddp::store {

class NewAgents {
public:
    using Take = std::function<void(base::UniqueFd connection, std::string first_bytes)>;

    explicit NewAgents(Take take) : take_(std::move(take)) {}
    bool are_taken() const { return static_cast<bool>(take_); }
    bool are_here() const { return !waiting_.empty(); }
    void add(base::UniqueFd connection, std::string_view first_bytes) {
        waiting_.push_back({std::move(connection), std::string(first_bytes)});
    }
    // `on_failure`: taking has thrown, and others may still wait.
    template <class OnFailure>
    void hand_over(const OnFailure& on_failure) {
        while (!waiting_.empty()) {
            Agent agent = std::move(waiting_.front());
            waiting_.pop_front();
            try {
                take_(std::move(agent.connection), std::move(agent.first_bytes));
            } catch (...) {
                on_failure();
                throw;
            }
        }
    }

private:
    struct Agent {
        base::UniqueFd connection;
        std::string first_bytes;
    };
    Take take_;
    std::deque<Agent> waiting_;
};

}  // namespace ddp::store
