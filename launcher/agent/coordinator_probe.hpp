// Whether what takes a connection is a coordinator: it refuses a host without workers in words. So
// an agent that coordinates itself learns of another without leaving its own members. A guest in
// the agent's loop.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/hosts/member.hpp"
#include "launcher/process/poller.hpp"

#include <sys/epoll.h>

#include <chrono>
#include <optional>
#include <utility>

namespace ddp::launcher {

class CoordinatorProbe {
public:
    using Time = Member::Time;

    // `join`: as this host would say it. Borrows the poller; the connection gets this tag there.
    CoordinatorProbe(base::UniqueFd connection, JoinMessage join, const JobProof& proof,
                     Poller& events, Poller::Tag tag, Time now)
        : member_(without_workers(std::move(join)), patience, proof), events_(events) {
        member_.begin(std::move(connection), now);
        events_.add(member_.fd(), EPOLLIN, tag);
    }
    ~CoordinatorProbe() { events_.remove(member_.fd()); }
    CoordinatorProbe(const CoordinatorProbe&) = delete;
    CoordinatorProbe& operator=(const CoordinatorProbe&) = delete;

    enum class Answer { none_yet, coordinator, something_else, nothing };
    Answer run(Time now) {
        member_.run_ready();
        while (const auto order = member_.take_order(now)) {
            if (!std::holds_alternative<RefusedMessage>(*order)) continue;
            return member_.trusts_coordinator() ? Answer::coordinator : Answer::something_else;
        }
        if (!member_.lost().empty()) return Answer::something_else;
        return now < member_.began() + patience ? Answer::none_yet : Answer::nothing;
    }

private:
    static constexpr std::chrono::milliseconds patience{2'000};

    static JoinMessage without_workers(JoinMessage join) {
        join.size.slots = 0;
        join.size.was_in_round = 0;
        join.size.was_member = 0;
        return join;
    }

    Member member_;
    Poller& events_;
};

}  // namespace ddp::launcher
