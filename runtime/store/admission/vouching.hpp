// Vouching: clients on other hosts that wait, unread, until somebody there has vouched for them.
// Pure bookkeeping; times are handed in. Its owner takes the questions as soon as there are some.
// Invariant: of one address no more than most_asked are asked about at a time, the others in the
// order in which they came.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/net/address.hpp"
#include "store/server/server_limits.hpp"

namespace ddp::store {

// Whether somebody else has yet to say that a client belongs to the job; it is not read meanwhile.
enum class Vouched : std::uint8_t { not_needed, needed, awaited };

// Whether the socket `there`, which is connected to `here`, belongs to the job.
struct ClientQuestion {
    ClientId client = 0;
    base::SocketAddress there;
    base::SocketAddress here;
};
// Of a connection whose other end is the client's; without addresses when it has been reset.
ClientQuestion question_about(ClientId client, int connection);

class Vouching {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t most_asked = 64;
    static constexpr std::chrono::seconds longest_answer{5};
    static constexpr std::chrono::seconds own_pause{1};

    // `address`: of its host. Ids grow with time.
    void add(const ClientQuestion& question, const std::string& address, Clock::time_point now);
    std::optional<ClientQuestion> take_question(Clock::time_point now);  // the next, once
    // It is answered, or the client has gone.
    void remove(ClientId client, Clock::time_point now);
    void clear();

    // Who has waited for an answer for too long. Nobody where the owner has asked for no questions
    // for a while: the answers may wait for it.
    std::vector<ClientId> overdue(Clock::time_point now);
    std::optional<Clock::time_point> wakes_at();
    // When there is no room left: the last that has no turn yet of those from where most wait, else
    // the oldest from there.
    std::optional<ClientId> first_to_go() const;

private:
    struct Waiting {
        ClientQuestion question;
        std::string address;
        bool has_turn = false;
    };
    struct Address {
        std::size_t turns = 0;
        std::deque<ClientId> others;  // some may be gone
    };
    void give_turn(Waiting& waiting, Address& place, Clock::time_point now);
    void drop_answered();

    std::map<ClientId, Waiting> waiting_;
    std::unordered_map<std::string, Address> addresses_;
    std::deque<ClientId> questions_;                            // some may be gone
    std::deque<std::pair<Clock::time_point, ClientId>> asked_;  // since then; some may be gone
    Clock::time_point last_turn_{};                             // of the owner
    Clock::time_point excused_until_{};
};

}  // namespace ddp::store
