#include "launcher/hosts/newcomers.hpp"

#include <algorithm>

namespace ddp::launcher {

void Newcomers::add(MemberId id, const std::string& address) {
    addresses_.emplace(id, address);
    by_address_[address].insert(id);
}

void Newcomers::remove(MemberId id) {
    const auto found = addresses_.find(id);
    if (found == addresses_.end()) return;
    const auto ids = by_address_.find(found->second);
    ids->second.erase(id);
    if (ids->second.empty()) by_address_.erase(ids);
    addresses_.erase(found);
}

// Of two addresses with as many: the one whose first is older.
std::optional<MemberId> Newcomers::first_to_go() const {
    using Ids = std::set<MemberId>;
    const auto goes_later = [](const Ids& one, const Ids& other) {
        if (one.size() != other.size()) return one.size() < other.size();
        return *one.begin() > *other.begin();
    };
    const auto most = std::ranges::max_element(
        by_address_, goes_later, [](const auto& entry) -> const Ids& { return entry.second; });
    if (most == by_address_.end()) return std::nullopt;
    return *most->second.begin();
}

}  // namespace ddp::launcher
