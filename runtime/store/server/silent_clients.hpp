// SilentClients: which connections have not yet sent one whole request, oldest first, and which of
// them have a right to their silence. Pure bookkeeping for the server: strangers that connect and
// say nothing must not use up its descriptors, and PyTorch 1.13's silent second connections must
// not be mistaken for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

namespace ddp::store {

class SilentClients {
public:
    using ClientId = std::uint64_t;

    explicit SilentClients(std::size_t most) : most_(most) {}

    // A connection has come. Ids grow with time.
    void add(ClientId id, const std::string& address);
    // It has spoken.
    void remove(ClientId id);
    // It has gone, and no partner of its is due.
    void forget(ClientId id, const std::string& address);
    // A 1.13 client on connection `id` has spoken: its second connection, the next from that
    // address, here already or still to come, is excused for good.
    void excuse_partner_of(ClientId id, const std::string& address);

    std::optional<ClientId> oldest() const;
    // The oldest, when there are more than allowed.
    std::optional<ClientId> surplus() const;
    void clear();

private:
    struct Silent {
        ClientId id;
        std::string address;
    };
    std::size_t most_;
    std::deque<Silent> silent_;  // oldest first
    // Whose partner is still to come, by address.
    std::unordered_multimap<std::string, ClientId> partners_due_;
};

}  // namespace ddp::store
