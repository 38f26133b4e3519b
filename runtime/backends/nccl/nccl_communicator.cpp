#include "backends/nccl/nccl_communicator.hpp"

#include "base/log.hpp"
#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;
using Clock = base::Deadline::Clock;

constexpr auto poll_yield_time = 100us;
constexpr auto longest_poll_pause = std::chrono::microseconds{1ms};

// Between two looks at what takes microseconds mostly and seconds sometimes.
class Pauses {
public:
    void pause() {
        if (Clock::now() - begin_ < poll_yield_time) return std::this_thread::yield();
        std::this_thread::sleep_for(next_);
        next_ = std::min(2 * next_, longest_poll_pause);
    }

private:
    Clock::time_point begin_ = Clock::now();
    std::chrono::microseconds next_ = 20us;
};

// What is orderly gets so much of the limit; then NCCL aborts, which may take long.
Clock::time_point patience_of(std::chrono::milliseconds limit) {
    return Clock::now() + std::min(limit / 2, std::chrono::milliseconds{2500});
}

}  // namespace

struct Communicator::Core {
    Core(const NcclLibrary& library_, device::DeviceApi& api_, int device_)
        : library(library_), api(api_), device(device_) {}

    const NcclLibrary& library;
    device::DeviceApi& api;
    int device;
    std::mutex mutex;  // of all calls to NCCL
    std::atomic<ncclComm_t> comm = nullptr;
    std::atomic<bool> cancelled = false;
    bool called_by_program = false;  // since the last launch

    std::mutex tasks_mutex;
    std::condition_variable changed;  // a task has come or ended, the init has
    std::deque<std::function<void()>> tasks;
    bool closing = false;
    std::atomic<bool> ready = false;
    std::exception_ptr refusal;

    void run() noexcept;
    void init(const ncclUniqueId& id, GroupRank own);
    void join(const ncclUniqueId& id, GroupRank own);
    void end(bool regular, Clock::time_point patience) noexcept;
    void revoke(Clock::time_point patience) noexcept;
    ncclResult_t state() const;
    bool poll_until(Clock::time_point end) const noexcept;
    void check(ncclResult_t result, const char* call) const;
};

void Communicator::Core::run() noexcept {
    std::unique_lock lock(tasks_mutex);
    while (true) {
        changed.wait(lock, [this] { return closing || !tasks.empty(); });
        if (tasks.empty()) return;
        const std::function<void()> task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

void Communicator::Core::check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const more = library.get_last_error(comm);
    throw BackendError(
        "nccl", static_cast<int>(result),
        std::string(call) + ": " + library.get_error_string(result) +
            (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : "") +
            "; NCCL_DEBUG=WARN tells more");
}

// Under the mutex.
ncclResult_t Communicator::Core::state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library.communicator.get_async_error(comm, &state);
    return asked == ncclSuccess ? state : asked;
}

void Communicator::Core::join(const ncclUniqueId& id, GroupRank own) {
    const std::lock_guard lock(mutex);
    api.use(device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result =
        library.communicator.init_rank_config(&made, own.ranks, id, own.rank, &config);
    comm = made;
    check(result, "ncclCommInitRankConfig");
}

void Communicator::Core::init(const ncclUniqueId& id, GroupRank own) {
    std::exception_ptr error;
    try {
        join(id, own);
        Pauses pauses;
        ncclResult_t now = ncclInProgress;
        while (now == ncclInProgress && !cancelled) {
            {
                const std::lock_guard lock(mutex);
                now = state();
                check(now, "ncclCommInitRankConfig");
            }
            if (now == ncclInProgress) pauses.pause();
        }
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard lock(tasks_mutex);
    refusal = error;
    ready = !error && !cancelled;
    changed.notify_all();
}

// Under the mutex. What NCCL does in the background has ended by itself.
bool Communicator::Core::poll_until(Clock::time_point end) const noexcept {
    Pauses pauses;
    while (state() == ncclInProgress) {
        if (Clock::now() >= end) return false;
        pauses.pause();
    }
    return true;
}

// Kernels in flight end; where it cannot be done abort does the same, less orderly.
void Communicator::Core::revoke(Clock::time_point patience) noexcept {
    // A launch that failed, or is still under way, NCCL keeps until it has been asked and answered
    // success; a revoke in between frees it, and what comes after would use it.
    if (library.communicator.revoke == nullptr || !ready || state() != ncclSuccess) return;
    const ncclResult_t result = library.communicator.revoke(comm, 0);
    if (result == ncclSuccess || result == ncclInProgress) poll_until(patience);
}

void Communicator::Core::end(bool regular, Clock::time_point patience) noexcept {
    const std::lock_guard lock(mutex);
    if (comm == nullptr) return;
    bool finalized = false;
    if (regular) {
        if (called_by_program) poll_until(patience);
        const ncclResult_t result = library.communicator.finalize(comm);
        finalized = (result == ncclSuccess || result == ncclInProgress) && poll_until(patience) &&
                    state() == ncclSuccess;
    } else {
        revoke(patience);
    }
    const ncclResult_t result =
        finalized ? library.communicator.destroy(comm) : library.communicator.abort(comm);
    comm = nullptr;
    if (result != ncclSuccess && result != ncclInProgress &&
        base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("nccl", std::string(finalized ? "ncclCommDestroy: " : "ncclCommAbort: ") +
                                    library.get_error_string(result));
    }
}

Communicator::Communicator(const NcclLibrary& library, device::DeviceApi& api, int device)
    : core_(std::make_shared<Core>(library, api, device)) {
    base::start_background_thread([core = core_] { core->run(); }).detach();
}

Communicator::~Communicator() {
    if (core_->comm != nullptr) {
        cancel();
        abort(1s);
    }
    const std::lock_guard lock(core_->tasks_mutex);
    core_->closing = true;
    core_->changed.notify_all();
}

bool Communicator::run_on_thread(std::function<void()> task,
                                 std::chrono::milliseconds limit) noexcept {
    const auto done = std::make_shared<bool>(false);
    std::unique_lock lock(core_->tasks_mutex);
    core_->tasks.emplace_back([core = core_, task = std::move(task), done] {
        task();
        const std::lock_guard inner(core->tasks_mutex);
        *done = true;
        core->changed.notify_all();
    });
    core_->changed.notify_all();
    return core_->changed.wait_until(lock, Clock::now() + limit, [&] { return *done; });
}

void Communicator::start_init(const ncclUniqueId& id, GroupRank own) {
    const std::lock_guard lock(core_->tasks_mutex);
    core_->tasks.emplace_back([core = core_.get(), id, own] { core->init(id, own); });
    core_->changed.notify_all();
}

bool Communicator::wait_ready(std::chrono::milliseconds wait) {
    std::unique_lock lock(core_->tasks_mutex);
    core_->changed.wait_until(lock, Clock::now() + wait,
                              [&] { return core_->ready || core_->refusal; });
    if (core_->refusal) std::rethrow_exception(core_->refusal);
    return core_->ready;
}

Communicator::Launch::Launch(Communicator& communicator)
    : lock_(communicator.core_->mutex),
      device_(communicator.core_->api, communicator.core_->device) {}

void Communicator::require_usable() const {
    if (core_->cancelled || core_->comm == nullptr) throw Cancelled{};
}

void Communicator::launch_group(const Enqueue& enqueue, const base::Deadline& deadline) {
    require_usable();
    Core& core = *core_;
    const ncclComm_t comm = core.comm;
    check(core.library.operations.group_start(), "ncclGroupStart");
    std::exception_ptr error;
    try {
        enqueue(comm);
    } catch (...) {
        error = std::current_exception();
    }
    const ncclResult_t ended =
        core.library.operations.group_end();  // whatever came: it is the thread's
    if (error) std::rethrow_exception(error);
    check(ended, "ncclGroupEnd");
    wait_while_in_progress(ended, "ncclGroupEnd", deadline);
}

void Communicator::wait_for_program(const base::Deadline& deadline) {
    if (!std::exchange(core_->called_by_program, false)) return;
    wait_while_in_progress(core_->state(), "the program's own call", deadline);
}

void Communicator::wait_while_in_progress(ncclResult_t now, const char* call,
                                          const base::Deadline& deadline) const {
    const Core& core = *core_;
    Pauses pauses;
    while (now == ncclInProgress) {
        now = core.state();
        if (now != ncclInProgress) break;
        if (core.cancelled) throw Cancelled{};
        if (deadline.passed()) {
            throw TimeoutError(std::string(call) + ": NCCL did not launch it within " +
                               base::to_string(deadline.timeout()));
        }
        pauses.pause();
    }
    check(now, call);
}

void Communicator::check(ncclResult_t result, const char* call) const {
    core_->check(result, call);
}

std::exception_ptr Communicator::find_async_error() {
    const std::unique_lock lock(core_->mutex, std::try_to_lock);
    if (!lock || core_->comm == nullptr) return nullptr;
    try {
        core_->check(core_->state(), "an operation in the background");
    } catch (const BackendError&) {
        return std::current_exception();
    }
    return nullptr;
}

void Communicator::cancel() noexcept { core_->cancelled = true; }

bool Communicator::abort(std::chrono::milliseconds limit) noexcept {
    const auto patience = patience_of(limit);
    return run_on_thread([core = core_.get(), patience] { core->end(false, patience); }, limit);
}

bool Communicator::leave(std::chrono::milliseconds limit) noexcept {
    const auto patience = patience_of(limit);
    return run_on_thread([core = core_.get(), patience] { core->end(true, patience); }, limit);
}

ncclComm_t Communicator::handle() const noexcept { return core_->comm; }

ncclComm_t Communicator::handle_for_program() noexcept {
    core_->called_by_program = true;
    return core_->comm;
}

}  // namespace ddp::nccl
