// MemoryBudget: what each client uses of a server's working memory, which is all but the map. Pure
// bookkeeping. A part is kept for the job's ranks, and another for replies whose values the map no
// longer holds. Invariant: what is charged to all clients never exceeds the budget, and
// what is charged to those that are not ranks never reaches into the ranks' part.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <unordered_map>

#include "store/server/server_limits.hpp"

namespace ddp::store {

class MemoryBudget {
public:
    // subscription: what a client waits for and watches.
    enum class Use : std::size_t { request, reply, subscription };
    using BelongsToJob = std::function<bool(ClientId)>;

    static constexpr std::size_t connection_bytes = 1024;  // what a client costs that does nothing

    MemoryBudget(std::size_t bytes, BelongsToJob belongs_to_job);

    // The client's charge for `use` becomes `bytes`. False, and nothing changes, when it would be
    // more than before and there is no memory left.
    bool charge(ClientId client, Use use, std::size_t bytes);
    // The same for something large, which leaves memory for small things of others.
    bool charge_large(ClientId client, Use use, std::size_t bytes);
    void forget(ClientId client);
    void clear();

    void mark_rank(ClientId client);
    // Whether it may use what is kept for ranks. Asks the hook, once a client.
    bool is_rank(ClientId client);

    std::size_t used() const { return used_by_others_ + used_by_ranks_; }
    std::size_t used_by(ClientId client) const;  // 0: nobody knows it, or it has left
    // The most that something large of this client can ever be; whether it can ever be that large,
    // which asks the hook only when others' cannot.
    std::size_t most_for(ClientId client);
    bool may_ever_have(ClientId client, std::size_t bytes);
    std::size_t left_for_detached() const;
    // Whether a charge has become smaller since this was asked last.
    bool take_released();

private:
    struct Account {
        std::array<std::size_t, 3> used{};
        bool is_rank = false;
        bool was_asked = false;
        std::size_t total() const { return connection_bytes + used[0] + used[1] + used[2]; }
    };
    std::size_t most_large(bool is_rank) const;
    std::size_t most_in_all() const { return 40 * part_; }
    std::size_t most_for_others() const { return 23 * part_; }
    std::size_t most_for_detached() const { return 32 * part_; }
    Account* open(ClientId client);
    enum class Size { small, large };
    bool charge(ClientId client, Use use, std::size_t bytes, Size size);
    bool fits(ClientId client, Account& account, std::size_t more, Size size);
    bool ask(ClientId client, Account& account);
    void promote(Account& account);
    std::size_t& pool(const Account& account) {
        return account.is_rank ? used_by_ranks_ : used_by_others_;
    }

    std::size_t part_;  // 1/48 of the budget, in which the shares above are counted
    BelongsToJob belongs_to_job_;
    std::unordered_map<ClientId, Account> accounts_;
    std::size_t used_by_others_ = 0;
    std::size_t used_by_ranks_ = 0;
    bool released_ = false;
};

}  // namespace ddp::store
