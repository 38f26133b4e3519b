// Newcomers: the links that have not joined yet, by the address they come from. Pure bookkeeping
// for the coordinator: whoever connects and does not join must not keep an agent out, wherever it
// comes from and however often.
#pragma once

#include "launcher/hosts/membership/rank_table.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace ddp::launcher {

class Newcomers {
public:
    // Ids grow with time.
    void add(MemberId id, const std::string& address);
    // It has joined or gone. One that is none changes nothing.
    void remove(MemberId id);
    std::size_t size() const { return addresses_.size(); }
    // The oldest of the address from which most of them came.
    std::optional<MemberId> first_to_go() const;

private:
    std::map<std::string, std::set<MemberId>> by_address_;  // no set is empty
    std::map<MemberId, std::string> addresses_;
};

// What was said of those that were refused: once each, and no more than so much, since strangers
// come often.
class RefusalWords {
public:
    bool is_news(const std::string& why) {
        constexpr std::size_t most = 64;
        return said_.size() < most && said_.insert(why).second;
    }

private:
    std::set<std::string> said_;
};

}  // namespace ddp::launcher
