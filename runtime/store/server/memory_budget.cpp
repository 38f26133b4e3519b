// The parts of the budget, for 48 MiB: 8 for detached values, which may also have what is left; 17
// for ranks, so that the largest request of ddp's own client (16 MiB) fits; 23 for everybody, of
// which 5 for small things only.
#include "store/server/memory_budget.hpp"

#include <algorithm>
#include <utility>

namespace ddp::store {

MemoryBudget::MemoryBudget(std::size_t bytes, BelongsToJob belongs_to_job)
    : part_(bytes / 48), belongs_to_job_(std::move(belongs_to_job)) {}

bool MemoryBudget::charge(ClientId client, Use use, std::size_t bytes) {
    return charge(client, use, bytes, Size::small);
}

bool MemoryBudget::charge_large(ClientId client, Use use, std::size_t bytes) {
    return charge(client, use, bytes, Size::large);
}

bool MemoryBudget::charge(ClientId client, Use use, std::size_t bytes, Size size) {
    auto* account = open(client);
    if (account == nullptr) return false;
    auto& used = account->used[static_cast<std::size_t>(use)];
    if (bytes > used) {
        if (!fits(client, *account, bytes - used, size)) return false;
        pool(*account) += bytes - used;
    } else if (bytes < used) {
        pool(*account) -= used - bytes;
        released_ = true;
    }
    used = bytes;
    return true;
}

// A new client counts as one of the others until it is known better.
MemoryBudget::Account* MemoryBudget::open(ClientId client) {
    const auto [entry, is_new] = accounts_.try_emplace(client);
    if (!is_new) return &entry->second;
    used_by_others_ += connection_bytes;
    const bool fits_somewhere = used() <= most_in_all() && (used_by_others_ <= most_for_others() ||
                                                            ask(client, entry->second));
    if (fits_somewhere) return &entry->second;
    pool(entry->second) -= connection_bytes;
    accounts_.erase(entry);
    return nullptr;
}

void MemoryBudget::forget(ClientId client) {
    const auto account = accounts_.extract(client);
    if (account.empty()) return;
    pool(account.mapped()) -= account.mapped().total();
    released_ = true;
}

void MemoryBudget::clear() {
    accounts_.clear();
    used_by_others_ = 0;
    used_by_ranks_ = 0;
}

bool MemoryBudget::fits(ClientId client, Account& account, std::size_t more, Size size) {
    const bool is_large = size == Size::large;
    if (used() + more + (is_large ? part_ / 2 : 0) > most_in_all()) return false;
    const auto kept = is_large ? 5 * part_ : 0;
    return account.is_rank || used_by_others_ + more + kept <= most_for_others() ||
           ask(client, account);
}

bool MemoryBudget::ask(ClientId client, Account& account) {
    if (account.is_rank || account.was_asked || !belongs_to_job_) return account.is_rank;
    account.was_asked = true;
    if (belongs_to_job_(client)) promote(account);
    return account.is_rank;
}

void MemoryBudget::mark_rank(ClientId client) {
    auto* account = open(client);
    if (account != nullptr && !account->is_rank) promote(*account);
}

// Its charges are the ranks' from now on.
void MemoryBudget::promote(Account& account) {
    used_by_others_ -= account.total();
    account.is_rank = true;
    used_by_ranks_ += account.total();
    released_ = true;
}

bool MemoryBudget::is_rank(ClientId client) {
    auto* account = open(client);
    return account != nullptr && (account->is_rank || ask(client, *account));
}

std::size_t MemoryBudget::used_by(ClientId client) const {
    const auto account = accounts_.find(client);
    return account == accounts_.end() ? 0 : account->second.total();
}

std::size_t MemoryBudget::most_large(bool is_rank) const {
    const auto most = is_rank ? most_in_all() - part_ / 2 : most_for_others() - 5 * part_;
    return most - connection_bytes;
}

std::size_t MemoryBudget::most_for(ClientId client) { return most_large(is_rank(client)); }

bool MemoryBudget::may_ever_have(ClientId client, std::size_t bytes) {
    return bytes <= most_large(false) || bytes <= most_for(client);
}

std::size_t MemoryBudget::left_for_detached() const {
    return std::min(most_for_detached(), 48 * part_ - used());
}

bool MemoryBudget::take_released() { return std::exchange(released_, false); }

}  // namespace ddp::store
