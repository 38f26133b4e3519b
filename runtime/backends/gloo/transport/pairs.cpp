#include "backends/gloo/transport/pairs.hpp"

#include "backends/gloo/transport/gloo_library.hpp"
#include "base/net/address.hpp"
#include "base/net/socket.hpp"
#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <gloo/common/error.h>
#include <gloo/transport/tcp/attr.h>

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <mutex>
#include <thread>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_at_a_time = 16;  // connections, each with a thread

sigset_t only_pipe_signal() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    return set;
}

std::shared_ptr<::gloo::transport::Device> open_device(const std::string& address) {
    const GlooLibrary& library = GlooLibrary::load();
    const base::SignalBlock no_signals;  // for Gloo's thread
    try {
        ::gloo::transport::tcp::attr attributes;
        attributes.hostname = address;
        if (auto device = library.create_device(attributes)) return device;
    } catch (const std::exception& error) {
        throw BackendError("gloo", 0, "cannot use the address " + address + ": " + error.what());
    }
    throw BackendError("gloo", 0, "cannot use the address " + address);
}

std::string address_key(int from, int to) {
    return "gloo/address/" + std::to_string(from) + "/" + std::to_string(to);
}

// "pid\nhost\naddress": the last is binary.
std::string encode(const std::vector<char>& address) {
    return std::to_string(::getpid()) + "\n" + base::host_name() + "\n" +
           std::string(address.begin(), address.end());
}

std::vector<char> decode(const std::string& text, PeerProcess& process) {
    const std::size_t first = text.find('\n');
    const std::size_t second = text.find('\n', first + 1);
    process.pid = static_cast<pid_t>(std::stol(text.substr(0, first)));
    process.host = text.substr(first + 1, second - first - 1);
    return {text.begin() + static_cast<std::ptrdiff_t>(second) + 1, text.end()};
}

}  // namespace

// It begins with the socket address.
std::vector<char> with_own_scope(std::vector<char> address, std::span<const char> own) {
    base::SocketAddress theirs{.size = sizeof(sockaddr_in6)};
    base::SocketAddress mine{.size = sizeof(sockaddr_in6)};
    if (std::min(address.size(), own.size()) < sizeof theirs.bytes) return address;
    std::memcpy(&theirs.bytes, address.data(), sizeof theirs.bytes);
    std::memcpy(&mine.bytes, own.data(), sizeof mine.bytes);
    if (!theirs.is_link_local() || !mine.is_link_local()) return address;
    reinterpret_cast<sockaddr_in6&>(theirs.bytes).sin6_scope_id =
        reinterpret_cast<const sockaddr_in6&>(mine.bytes).sin6_scope_id;
    std::memcpy(address.data(), &theirs.bytes, sizeof theirs.bytes);
    return address;
}

PipeSignalBlock::PipeSignalBlock() noexcept {
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    const sigset_t set = only_pipe_signal();
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

PipeSignalBlock::~PipeSignalBlock() {
    if (!was_pending_) {
        const sigset_t set = only_pipe_signal();
        const timespec now{};
        while (::sigtimedwait(&set, nullptr, &now) == SIGPIPE) {
        }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Pairs::Pairs(int own_rank, int ranks, const std::string& address)
    : rank_(own_rank),
      processes_(static_cast<std::size_t>(ranks)),
      device_(open_device(address)),
      context_(device_->createContext(own_rank, ranks)) {}

void Pairs::connect(ddp::Store& store, const base::Deadline& deadline) {
    // A pair waits five times its timeout for its connection; zero would be for ever.
    context_->setTimeout(std::max(deadline.left() / 5, 1ms));
    StoreKeys own_keys;
    StoreKeys their_keys;
    StoreValues addresses;
    std::vector<Peer> peers;
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank_) continue;
        peers.push_back({peer, {}});
        own_keys.push_back(address_key(rank_, peer));
        their_keys.push_back(address_key(peer, rank_));
        addresses.push_back(encode(context_->createPair(peer)->address().bytes()));
    }
    store.multi_set(own_keys, addresses);
    const StoreValues theirs = store.multi_get(their_keys, deadline.left());
    for (std::size_t i = 0; i < peers.size(); ++i) {
        Peer& peer = peers[i];
        peer.address = decode(theirs[i], processes_[static_cast<std::size_t>(peer.rank)]);
    }
    connect_all(peers);
    processes_[static_cast<std::size_t>(rank_)] = {::getpid(), base::host_name()};
}

// Beside each other: some steps of a connection wait for the next turn of Gloo's loop, which comes
// once in 10 ms where nothing else happens. An error is thrown when those that have begun have
// ended.
void Pairs::connect_all(const std::vector<Peer>& peers) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr first_error;
    const auto connect_some = [&] {
        for (std::size_t at = next++; at < peers.size(); at = next++) {
            try {
                connect_to(peers[at]);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!first_error) first_error = std::current_exception();
                next = peers.size();
            }
        }
    };
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < std::min(peers.size(), most_at_a_time)) {
            helpers.push_back(base::start_background_thread(connect_some));
        }
    } catch (const std::exception&) {  // fewer take longer
    }
    connect_some();
    for (std::thread& helper : helpers) helper.join();
    if (first_error) std::rethrow_exception(first_error);
}

void Pairs::connect_to(const Peer& peer) {
    try {
        const auto& pair = context_->getPair(peer.rank);
        pair->connect(with_own_scope(peer.address, pair->address().bytes()));
    } catch (const ::gloo::Exception& error) {
        throw BackendError("gloo", 0,
                           "cannot connect to rank " + std::to_string(peer.rank) + " on host " +
                               processes_[static_cast<std::size_t>(peer.rank)].host + ": " +
                               error.what());
    }
}

void Pairs::close_all() noexcept {
    // A wait that ends by its timeout makes Gloo close every pair of the context: its only way to
    // do so that sends what has been written and that other threads may be in the way of.
    try {
        char nothing = 0;
        buffer(&nothing, 1)->waitRecv(1ms);
    } catch (const std::exception&) {
    }
}

}  // namespace ddp::gloo
