#include "store/admission/peer_check.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/net/local_socket.hpp"
#include "base/printable.hpp"
#include "base/process/process_tree.hpp"
#include "base/process/unmapped_user.hpp"

namespace ddp::store {
namespace {

constexpr uid_t root = 0;

// The real, effective, saved and file-system user of a process; none when it is gone.
std::vector<uid_t> users_of(pid_t pid) {
    const std::string text = base::read_small_file("/proc/" + std::to_string(pid) + "/status");
    const std::size_t line = text.find("\nUid:");
    if (line == text.npos) return {};
    std::vector<uid_t> users;
    const char* at = text.data() + line + std::string_view("\nUid:").size();
    const char* const end = text.data() + text.size();
    while (at != end && *at == '\t') {
        uid_t user = 0;
        at = std::from_chars(at + 1, end, user).ptr;
        users.push_back(user);
    }
    return users;
}

std::string describe_process(uid_t user, pid_t pid) {
    const auto stat = base::stat_of(pid);
    return "uid " + std::to_string(user) + ", pid " + std::to_string(pid) +
           (stat ? " (" + base::printable(stat->name) + ")" : "");
}

bool is_number(const std::string& text, pid_t& number) {
    const char* const end = text.data() + text.size();
    return std::from_chars(text.data(), end, number).ptr == end;
}

}  // namespace

PeerCheck::PeerCheck(PeerRule rule, SocketOwners::Source first)
    : rule_(rule),
      owners_(rule.peers == StorePeers::any ? SocketOwners::Source::nothing : first),
      own_user_(::geteuid()) {
    if (rule.peers == StorePeers::any) return;
    if (owners_.source() == SocketOwners::Source::nothing) {
        throw SystemError{"store: this host does not tell who connects (" + owners_.refusals() +
                              "); to serve whoever does, use --store-peers=any (a program without "
                              "ddp-launch: DDP_STORE_PEERS=any)",
                          EPERM};
    }
}

PeerCheck::Verdict PeerCheck::look_at(int connection) {
    if (const auto peer = base::local_peer(connection)) return look_at_local(*peer);
    const base::SocketAddress there = base::address_of(connection, base::End::other);
    const base::SocketAddress here = base::address_of(connection, base::End::own);
    const bool is_here = is_on_this_host(there, here, own_addresses_);
    if (rule_.peers == StorePeers::any) return {.is_elsewhere = !is_here};
    const bool was_reset = there.size == 0;
    if (was_reset) return {"refused a connection that was closed at once"};
    using Devices = SocketOwners::Devices;
    const auto devices = is_here ? Devices::loopback_too : Devices::none;
    if (const auto owner = owners_.owner_of(there, here, devices)) {
        if (trusts(*owner)) return {};
        return {refusal_of(peer_address(connection), owner->user)};
    }
    if (!is_here) return {.is_elsewhere = true};
    return {"refused " + peer_address(connection) +
            ": its other end is not among this host's sockets (closed, or redirected on the "
            "way), so that nobody can tell whose it is; --store-peers=any "
            "(DDP_STORE_PEERS=any) serves everybody"};
}

PeerCheck::Verdict PeerCheck::look_at_local(const ucred& peer) {
    const bool served = rule_.peers == StorePeers::any || is_known(peer.uid) || descends(peer);
    if (served) return {};
    return {refusal_of("process " + std::to_string(peer.pid), peer.uid)};
}

std::string PeerCheck::refusal_of(const std::string& who, uid_t user) const {
    return "refused " + who + ": it belongs to uid " + std::to_string(user) +
           ", which is neither root nor uid " + std::to_string(own_user_) +
           ", and to no process of this job; --store-peers=any (DDP_STORE_PEERS=any) serves "
           "everybody";
}

bool PeerCheck::is_known(uid_t user) const {
    return (user == root || user == own_user_) && !base::stands_for_many(user);
}

bool PeerCheck::trusts(const SocketOwner& owner) { return is_known(owner.user) || descends(owner); }

bool PeerCheck::trusts_end(const base::SocketAddress& own, const base::SocketAddress& other) {
    const auto owner = owners_.owner_of(own, other);
    return owner && trusts(*owner);
}

bool PeerCheck::belongs_to_job(int connection) {
    if (const auto peer = base::local_peer(connection)) return descends(*peer);
    const auto owner = owners_.peer_of(connection);
    return owner && descends(*owner);
}

// Exactly the process that has the socket, where that can be seen. Another user's descriptors
// cannot, without being root: then it is enough that a descendant runs as that user.
bool PeerCheck::descends(const SocketOwner& owner) {
    if (!is_user_of_job(owner.user)) return false;
    return base::any_descendant(::getpid(), [&](pid_t pid) {
        if (const auto holds = base::holds_socket(pid, owner.inode)) return *holds;
        for (const uid_t user : users_of(pid)) {
            if (user == owner.user && !base::stands_for_many(user)) return true;
        }
        return false;
    });
}

// The number may be another process's by now: that one counts only if it runs as that user, too.
bool PeerCheck::descends(const ucred& peer) {
    if (peer.pid <= 0 || !is_user_of_job(peer.uid) || base::stands_for_many(peer.uid)) return false;
    const std::vector<uid_t> users = users_of(peer.pid);
    return std::find(users.begin(), users.end(), peer.uid) != users.end() &&
           base::descends_from(peer.pid, ::getpid());
}

bool PeerCheck::some_descendant_runs_as(uid_t user) {
    const auto begin = Clock::now();
    if (begin >= next_look_) {
        descendants_users_.clear();
        base::any_descendant(::getpid(), [this](pid_t pid) {
            for (const uid_t one : users_of(pid)) descendants_users_.insert(one);
            return false;
        });
        const auto end = Clock::now();
        next_look_ = end + 9 * (end - begin);
    }
    return descendants_users_.contains(user);
}

void require_trusted_server(int connection, const std::string& where) {
    base::OwnAddresses own_addresses;
    if (!peer_is_on_this_host(connection, own_addresses)) return;
    constexpr const char* advice = "; DDP_STORE_PEERS=any goes on all the same";
    const SocketOwners owners;
    const auto owner = owners.peer_of(connection);
    if (!owner) {
        throw SystemError{"store: nobody tells whose process listens at " + where +
                              (owners.refusals().empty() ? "" : " (" + owners.refusals() + ")") +
                              advice,
                          EPERM};
    }
    const bool known = owner->user == root || owner->user == ::geteuid();
    if (known && !base::stands_for_many(owner->user)) return;
    throw UsageError{"store: what listens at " + where + " belongs to uid " +
                     std::to_string(owner->user) + ", neither root nor uid " +
                     std::to_string(::geteuid()) + ", who runs this rank; use another MASTER_PORT" +
                     advice};
}

std::string PeerCheck::describe(int connection) const {
    if (const auto peer = base::local_peer(connection)) {
        return describe_process(peer->uid, peer->pid);
    }
    const auto owner = owners_.peer_of(connection);
    if (!owner) return peer_address(connection);
    const std::string user = "uid " + std::to_string(owner->user);
    for (const std::string& name : base::names_in("/proc")) {
        pid_t pid = 0;
        if (!is_number(name, pid) || !base::holds_socket(pid, owner->inode).value_or(false)) {
            continue;
        }
        return describe_process(owner->user, pid);
    }
    return user + " at " + peer_address(connection);
}

}  // namespace ddp::store
