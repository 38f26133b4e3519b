#include "store/peer_check.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/printable.hpp"
#include "base/process_tree.hpp"
#include "base/unmapped_user.hpp"

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

std::optional<std::string> PeerCheck::refusal(int connection) {
    if (rule_.peers == StorePeers::any) return std::nullopt;
    if (!has_peer(connection)) return "refused a connection that was closed at once";
    const auto owner = owners_.peer_of(connection);
    if (!owner) {
        if (peer_is_on_this_host(connection)) {
            return "refused " + peer_address(connection) +
                   ": its other end is not among this host's sockets (closed, or redirected on the "
                   "way), so that nobody can tell whose it is; --store-peers=any "
                   "(DDP_STORE_PEERS=any) serves everybody";
        }
        if (rule_.other_hosts) return std::nullopt;
        return "refused " + peer_address(connection) +
               ": it is on another host, and all ranks are on this one";
    }
    if (trusts(*owner)) return std::nullopt;
    return "refused " + peer_address(connection) + ": it belongs to uid " +
           std::to_string(owner->user) + ", which is neither root nor uid " +
           std::to_string(own_user_) +
           ", and to no process of this job; --store-peers=any (DDP_STORE_PEERS=any) serves "
           "everybody";
}

bool PeerCheck::trusts(const SocketOwner& owner) {
    const bool known = owner.user == root || owner.user == own_user_;
    return (known && !base::stands_for_many(owner.user)) || descends(owner);
}

bool PeerCheck::belongs_to_job(int connection) {
    const auto owner = owners_.peer_of(connection);
    return owner && descends(*owner);
}

// Exactly the process that has the socket, where that can be seen. Another user's descriptors
// cannot, without being root: then it is enough that a descendant runs as that user.
bool PeerCheck::descends(const SocketOwner& owner) {
    if (owner.user != own_user_ && !some_descendant_runs_as(owner.user)) return false;
    return base::any_descendant(::getpid(), [&](pid_t pid) {
        if (const auto holds = base::holds_socket(pid, owner.inode)) return *holds;
        for (const uid_t user : users_of(pid)) {
            if (user == owner.user && !base::stands_for_many(user)) return true;
        }
        return false;
    });
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
    if (!peer_is_on_this_host(connection)) return;
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
    const auto owner = owners_.peer_of(connection);
    if (!owner) return peer_address(connection);
    const std::string user = "uid " + std::to_string(owner->user);
    for (const std::string& name : base::names_in("/proc")) {
        pid_t pid = 0;
        if (!is_number(name, pid) || !base::holds_socket(pid, owner->inode).value_or(false)) {
            continue;
        }
        const auto stat = base::stat_of(pid);
        return user + ", pid " + name + (stat ? " (" + base::printable(stat->name) + ")" : "");
    }
    return user + " at " + peer_address(connection);
}

}  // namespace ddp::store
