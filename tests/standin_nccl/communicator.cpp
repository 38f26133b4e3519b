#include "standin_nccl/communicator.hpp"

#include <dlfcn.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <utility>

namespace stand_in {

namespace {
using Clock = std::chrono::steady_clock;

std::uint64_t host_hash() {
    const char* const name = std::getenv("NCCL_HOSTID");
    return std::hash<std::string>{}(name == nullptr ? "" : name);
}

bool has_ended(int pidfd) {
    pollfd watched{pidfd, POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}
}  // namespace

const ddp_host_driver* find_driver() {
    void* const found = ::dlsym(RTLD_DEFAULT, "ddp_find_host_driver");
    return found == nullptr ? nullptr : reinterpret_cast<decltype(&ddp_find_host_driver)>(found)();
}

Communicator::Communicator(const Seat& seat, const ncclUniqueId& id, std::shared_ptr<Shared> shared)
    : seat_(seat), id_(id), shared_(std::move(shared)) {}

Communicator::~Communicator() {
    for (const int fd : peer_fds_) ::close(fd);
}

bool Communicator::is_in_progress() const { return in_background_ || pending_ != nullptr; }

void Communicator::in_background(std::function<void()> work) {
    join_background();
    in_background_ = true;
    background_ = std::thread([this, work = std::move(work)] {
        work();
        in_background_ = false;
    });
}

void Communicator::join_background() {
    if (background_.joinable()) background_.join();
}

void Communicator::set_error(ncclResult_t result, const std::string& text) {
    const std::lock_guard lock(text_mutex_);
    text_ = text;
    error_ = result;
}

std::string Communicator::error_text() const {
    const std::lock_guard lock(text_mutex_);
    return text_;
}

bool Communicator::claim_entry() {
    RankEntry& own = entry(seat_.rank);
    std::uint32_t nobody = 0;
    if (!own.arrived.compare_exchange_strong(nobody, 1)) {
        set_error(ncclInvalidUsage, "rank " + std::to_string(seat_.rank) + " is taken");
        return false;
    }
    const ddp_host_driver* const driver = find_driver();
    own.pid = ::getpid();
    own.ranks = seat_.ranks;
    own.bus_id = driver == nullptr ? static_cast<unsigned long long>(seat_.rank)
                                   : driver->bus_id(seat_.device);
    own.host = host_hash();
    own.arrived = 2;
    return true;
}

bool Communicator::agrees_with_peers() {
    const RankEntry& own = entry(seat_.rank);
    for (int rank = 0; rank < seat_.ranks; ++rank) {
        const RankEntry& other = entry(rank);
        if (other.ranks != own.ranks) {
            set_error(ncclInvalidUsage, "the ranks disagree on how many they are");
            return false;
        }
        if (rank != seat_.rank && other.bus_id == own.bus_id && other.host == own.host) {
            set_error(ncclInvalidUsage, "Duplicate GPU: ranks " + std::to_string(seat_.rank) +
                                            " and " + std::to_string(rank) + " use the same");
            return false;
        }
    }
    return true;
}

void Communicator::watch_peers() {
    if (!knobs().remote_error) return;
    for (int rank = 0; rank < seat_.ranks; ++rank) {
        const pid_t pid = entry(rank).pid;
        if (pid == ::getpid()) continue;
        const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
        if (fd >= 0) peer_fds_.push_back(fd);
    }
}

void Communicator::bring_up(const std::atomic<bool>& stopped) {
    if (const auto fault = knobs().fault(seat_.rank, Fault::in_init)) {
        if (fault->kind == FaultKind::die) ::kill(::getpid(), SIGKILL);
        if (fault->kind == FaultKind::error) set_error(fault->result, "as the test has asked");
        (void)Place{.stopped = &stopped}.hang();
        return;
    }
    const char* why = nullptr;
    region_ = open_region(id_, why);
    if (region_ == nullptr) return set_error(ncclSystemError, why);
    if (!claim_entry()) return;
    const Place place{.stopped = &stopped};
    for (int rank = 0; rank < seat_.ranks; ++rank) {
        if (!place.wait_until([&] { return entry(rank).arrived == 2; })) return;
    }
    forget_id(id_);
    if (agrees_with_peers()) watch_peers();
}

bool Communicator::peer_is_gone() const {
    for (int rank = 0; rank < seat_.ranks; ++rank) {
        if (rank != seat_.rank && entry(rank).left != 0) return true;
    }
    for (const int fd : peer_fds_) {
        if (has_ended(fd)) return true;
    }
    return false;
}

ncclResult_t Communicator::poll() {
    if (error() != ncclSuccess) return error();
    if (in_background_) return ncclInProgress;
    if (pending_ != nullptr) {
        if (--polls_left_ >= 0 || Clock::now() < due_) return ncclInProgress;
        put(std::move(pending_));
    }
    if (is_stopped()) return running_ == 0 ? ncclSuccess : ncclInProgress;
    if (const auto patience = knobs().remote_error; patience && peer_is_gone()) {
        if (!gone_since_) gone_since_ = Clock::now();
        if (Clock::now() - *gone_since_ >= *patience) {
            set_error(ncclRemoteError, "a peer has left");
            return error();
        }
    }
    if (finalizing_ && !is_quiescent()) return ncclInProgress;
    return ncclSuccess;
}

void Communicator::stop(bool for_abort) {
    stopped_ = true;
    if (for_abort) shared_->aborted = true;
    shared_->child_stopped = true;
    shared_->stopped = true;
}

void Communicator::finalize() { finalizing_ = true; }

bool Communicator::is_quiescent() {
    if (has_work() || is_in_a_graph()) return false;
    entry(seat_.rank).finalized = 1;
    for (int rank = 0; rank < seat_.ranks; ++rank) {
        if (entry(rank).finalized == 0) return false;
    }
    return true;
}

void Communicator::revoke() {
    stop(false);
    revoked_ = true;
    if (pending_) ++ended_;
    pending_.reset();
    set_error(ncclSuccess, "");
}

void Communicator::abort_work() {
    shared_->stopped = true;
    for (Backoff backoff; ended_ != launched_;) backoff.pause();
}

void Communicator::abort() {
    stop(true);
    leave();
}

void Communicator::leave() {
    join_background();
    pending_.reset();
    for (Backoff backoff; running_ != 0;) backoff.pause();
    if (region_ != nullptr) entry(seat_.rank).left = 1;
    forget_id(id_);
}

ncclRedOp_t Communicator::add_reduction(const Reduction& reduction) {
    reductions_.emplace_back(reduction);
    return static_cast<ncclRedOp_t>(static_cast<std::size_t>(ncclNumOps) + reductions_.size() - 1);
}

std::optional<Reduction> Communicator::find_reduction(ncclRedOp_t op) const {
    if (op >= ncclSum && op < ncclNumOps) return Reduction{op};
    const auto index = static_cast<std::size_t>(op) - static_cast<std::size_t>(ncclNumOps);
    return index < reductions_.size() ? reductions_[index] : std::nullopt;
}

bool Communicator::remove_reduction(ncclRedOp_t op) {
    if (op < ncclNumOps || !find_reduction(op)) return false;
    reductions_[static_cast<std::size_t>(op) - static_cast<std::size_t>(ncclNumOps)].reset();
    return true;
}

}  // namespace stand_in
