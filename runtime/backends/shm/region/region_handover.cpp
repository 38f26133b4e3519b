#include "backends/shm/region/region_handover.hpp"

#include "base/net/local_socket.hpp"
#include "base/net/pass_descriptor.hpp"
#include "base/net/socket.hpp"
#include "base/process/background_thread.hpp"
#include "base/random.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace ddp::shm {
namespace {

constexpr int pause_when_full_ms = 50;  // of a process without a free descriptor
constexpr std::string_view name_prefix = "ddp-region-";
constexpr std::size_t most_digits = 20;  // of a 64-bit number
static_assert(1 + name_prefix.size() + most_digits <= sizeof sockaddr_un::sun_path);

// The kernel makes a client wait while the listener's queue is full.
void connect_within(int socket, const base::AbstractAddress& where, const base::Deadline& deadline,
                    const std::string& what) {
    for (;;) {
        const auto left = std::max(deadline.left(), std::chrono::milliseconds{1});
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const std::chrono::microseconds rest = left - seconds;
        const timeval longest{seconds.count(), rest.count()};
        ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
        if (::connect(socket, where.generic(), where.size) == 0) return;
        if (errno == EAGAIN) throw SystemError(what, ETIMEDOUT);
        if (errno != EINTR) throw SystemError(what, errno);
    }
}

}  // namespace

RegionHandover::RegionHandover(int region_fd, std::vector<pid_t> receivers,
                               const HostKernel& kernel)
    : region_fd_(region_fd),
      receivers_(std::move(receivers)),
      kernel_(kernel),
      name_(std::string(name_prefix) + std::to_string(base::random_bits())),
      listener_(base::listen_local(name_)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
    if (!listener_ || !stop_) {
        throw SystemError("shm: a socket to hand out the shared region", errno);
    }
    thread_ = base::start_background_thread([this] { serve(); });
}

RegionHandover::~RegionHandover() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
}

void RegionHandover::serve() const {
    for (;;) {
        pollfd ready[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        ::poll(ready, 2, -1);  // ends with stop_
        if (ready[1].revents != 0) return;
        constexpr int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
        const base::UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, flags));
        if (!peer && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            ::poll(&ready[1], 1, pause_when_full_ms);  // the client stays in the queue
        } else if (peer && may_have_it(peer.get())) {
            base::send_descriptor(peer.get(), region_fd_);  // a client that left needs nothing
        }
    }
}

// A pid is 0 where that process has none here: it is in a pid namespace that we do not see into.
bool RegionHandover::may_have_it(int socket) const {
    const ucred client = kernel_.peer_of(socket);
    if (client.pid <= 0 || !why_not_ours(kernel_, client.uid).empty()) return false;
    return receivers_.empty() ||
           std::find(receivers_.begin(), receivers_.end(), client.pid) != receivers_.end();
}

bool is_handover_name(std::string_view text) {
    if (!text.starts_with(name_prefix)) return false;
    text.remove_prefix(name_prefix.size());
    return !text.empty() && text.size() <= most_digits &&
           text.find_first_not_of("0123456789") == text.npos;
}

base::UniqueFd receive_region(const std::string& name, pid_t creator,
                              const base::Deadline& deadline, const HostKernel& kernel) {
    const std::string what =
        "shm: ask process " + std::to_string(creator) + " for the shared region";
    if (!is_handover_name(name)) throw UsageError(what + ": '" + name + "' is no such socket");
    const base::AbstractAddress where = base::abstract_address(name);
    const base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) throw SystemError(what, errno);
    connect_within(socket.get(), where, deadline, what);
    // The credentials of the process that listens there: one that squats on the name is refused.
    const ucred answers = kernel.peer_of(socket.get());
    if (const std::string foreign = why_not_ours(kernel, answers.uid); !foreign.empty()) {
        throw UsageError(what + ": what answers " + foreign);
    }
    if (answers.pid != creator) {
        throw UsageError(what + ": another process answered, " + std::to_string(answers.pid));
    }
    char byte = 0;
    base::Received got;
    do {
        if (!base::wait_readable(socket.get(), deadline)) throw SystemError(what, ETIMEDOUT);
        got = base::receive_with_descriptor(socket.get(), {&byte, 1});
    } while (got.bytes < 0 && (errno == EINTR || errno == EAGAIN));
    if (got.is_lost) throw SystemError(what, EMFILE);
    if (!got.descriptor) {
        throw SystemError(what + ": refused; to it this process is another user's, or no rank",
                          EACCES);
    }
    return std::move(got.descriptor);
}

}  // namespace ddp::shm
