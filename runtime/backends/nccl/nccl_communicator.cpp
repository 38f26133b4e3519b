#include "backends/nccl/nccl_communicator.hpp"

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <algorithm>
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

// From 2.22 on ncclCommAbort and ncclCommRevoke in a group leave to its end all but their flags.
bool can_block(const NcclLibrary& library) { return library.version >= 22203; }

// A template: NCCL's header has the member from 2.18 on.
template <class Config>
void lend_to_split_off(Config& config) {
    if constexpr (requires { config.splitShare; }) config.splitShare = 1;
}

}  // namespace

// What the communicator's threads have to do.
struct Communicator::Tasks {
    std::mutex mutex;
    std::condition_variable changed;  // a task has come or ended, the init has
    std::deque<std::function<void()>> waiting;
    bool have_threads = false;
    bool closing = false;
    bool stopped = false;  // by abort: nobody is inside NCCL any more
    std::exception_ptr refusal;
};

struct Communicator::Core {
    Core(const NcclLibrary& library_, device::DeviceApi& api_, int device_,
         std::shared_ptr<std::mutex> calls)
        : library(library_), api(api_), device(device_), mutex(std::move(calls)) {}

    const NcclLibrary& library;
    device::DeviceApi& api;
    int device;
    bool lends = false;
    const std::shared_ptr<std::mutex> mutex;  // of all calls to NCCL, but for the flags
    std::atomic<ncclComm_t> comm = nullptr;
    ncclComm_t made = nullptr;  // NCCL before 2.18 reads it until the init is done
    std::atomic<bool> is_in_graphs = false;
    std::atomic<bool> cancelled = false;
    std::atomic<bool> end_begun = false;  // by destroy or abort: NCCL bears one of them
    bool called_by_program = false;       // since the last launch

    std::atomic<bool> ready = false;

    Tasks tasks;

    bool blocks() const { return can_block(library); }
    void run() noexcept;
    void close();
    void note_stopped();
    void init(const ncclUniqueId& id, GroupRank own);
    void join(const ncclUniqueId& id, GroupRank own);
    void leave() noexcept;
    void abort() noexcept;
    void log_failure(const char* call, ncclResult_t result) const;
    ncclResult_t state() const;
    bool poll_until_ended() const noexcept;
    void check(ncclResult_t result, const char* call) const;
};

void Communicator::Core::run() noexcept {
    try {
        api.use(device);      // before the driver can be held up by what is to be aborted
    } catch (const Error&) {  // the GPU is lost: init says so
    }
    std::unique_lock lock(tasks.mutex);
    while (true) {
        tasks.changed.wait(lock, [this] { return tasks.closing || !tasks.waiting.empty(); });
        if (tasks.waiting.empty()) return;
        const std::function<void()> task = std::move(tasks.waiting.front());
        tasks.waiting.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

void Communicator::Core::close() {
    const std::lock_guard lock(tasks.mutex);
    tasks.closing = true;
    tasks.changed.notify_all();
}

void Communicator::Core::note_stopped() {
    const std::lock_guard lock(tasks.mutex);
    tasks.stopped = true;
    tasks.changed.notify_all();
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

// In a group: outside of one the communicator would be known when the init has ended, too late for
// abort.
void Communicator::Core::join(const ncclUniqueId& id, GroupRank own) {
    const std::lock_guard lock(*mutex);
    if (cancelled) return;
    api.use(device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocks() ? 1 : 0;
    if (lends) lend_to_split_off(config);
    check(library.operations.group_start(), "ncclGroupStart");
    const ncclResult_t result =
        library.communicator.init_rank_config(&made, own.ranks, id, own.rank, &config);
    comm = made;  // for abort
    const ncclResult_t ended = library.operations.group_end();
    check(result, "ncclCommInitRankConfig");
    check(ended, "ncclCommInitRankConfig");
}

void Communicator::Core::init(const ncclUniqueId& id, GroupRank own) {
    std::exception_ptr error;
    try {
        join(id, own);
        Pauses pauses;
        ncclResult_t now = ncclInProgress;
        while (now == ncclInProgress && !cancelled) {
            {
                const std::lock_guard lock(*mutex);
                now = state();
                check(now, "ncclCommInitRankConfig");
            }
            if (now == ncclInProgress) pauses.pause();
        }
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard lock(tasks.mutex);
    tasks.refusal = error;
    ready = !error && !cancelled;
    tasks.changed.notify_all();
}

// Under the mutex. What NCCL does in the background has ended by itself; false: cancelled before.
bool Communicator::Core::poll_until_ended() const noexcept {
    for (Pauses pauses; state() == ncclInProgress; pauses.pause()) {
        if (cancelled) return false;
    }
    return true;
}

void Communicator::Core::log_failure(const char* call, ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    if (!base::log_enabled(base::LogLevel::debug)) return;
    base::log_debug("nccl", std::string(call) + ": " + library.get_error_string(result));
}

// Leaves the communicator to abort unless all went well.
void Communicator::Core::leave() noexcept {
    const std::lock_guard lock(*mutex);
    ready = false;  // before the look at cancelled: NCCL revokes nothing that is being finalized
    if (comm == nullptr || cancelled) return;
    if (called_by_program && !poll_until_ended()) return;
    const ncclResult_t result = library.communicator.finalize(comm);
    log_failure("ncclCommFinalize", result);
    if (result != ncclSuccess && result != ncclInProgress) return;
    if (!poll_until_ended() || state() != ncclSuccess || end_begun.exchange(true)) return;
    log_failure("ncclCommDestroy", library.communicator.destroy(comm.exchange(nullptr)));
}

// Orderly where NCCL can: kernels in flight end first.
void Communicator::Core::abort() noexcept {
    std::unique_lock lock(*mutex, std::defer_lock);
    for (Pauses pauses; comm == nullptr && !lock.try_lock();) {  // init makes it soon
        if (end_begun) return;
        pauses.pause();
    }
    if (comm == nullptr) return;
    const ncclComm_t ending = comm;
    const bool is_first = !end_begun.exchange(true);
    bool revoked = false;
    if (is_first && blocks()) {
        library.operations.group_start();
        // An abort after a revoke frees what graphs still refer to; one alone waits for their end.
        revoked = library.communicator.revoke != nullptr && ready && !is_in_graphs &&
                  library.communicator.revoke(ending, 0) == ncclSuccess;
        if (!revoked) log_failure("ncclCommAbort", library.communicator.abort(ending));
    }
    if (!lock) lock.lock();  // who is inside returns
    note_stopped();
    if (!is_first) return;
    if (blocks()) log_failure("ncclGroupEnd", library.operations.group_end());
    if (!blocks() || revoked) log_failure("ncclCommAbort", library.communicator.abort(ending));
    comm = nullptr;
}

Communicator::Communicator(const NcclLibrary& library, device::DeviceApi& api, int device,
                           bool lends)
    : Communicator(std::make_shared<Core>(library, api, device, std::make_shared<std::mutex>())) {
    core_->lends = lends;
    start_threads();
}

void Communicator::start_threads() {
    core_->tasks.have_threads = true;
    try {
        for (int i = 0; i < 2; ++i) {  // abort comes while init or leave is inside NCCL
            base::start_background_thread([core = core_] { core->run(); }).detach();
        }
    } catch (...) {
        core_->close();
        throw;
    }
}

Communicator::~Communicator() {
    if (core_->comm != nullptr && !core_->end_begun) {
        cancel();
        abort(1s);
    }
    core_->close();
}

bool Communicator::run_on_thread(std::function<void()> task,
                                 std::chrono::milliseconds limit) noexcept {
    try {
        if (!core_->tasks.have_threads) start_threads();
    } catch (const SystemError&) {
        return false;
    }
    const auto done = std::make_shared<bool>(false);
    std::unique_lock lock(core_->tasks.mutex);
    core_->tasks.waiting.emplace_back([core = core_, task = std::move(task), done] {
        task();
        const std::lock_guard inner(core->tasks.mutex);
        *done = true;
        core->tasks.changed.notify_all();
    });
    core_->tasks.changed.notify_all();
    return core_->tasks.changed.wait_until(lock, Clock::now() + limit, [&] {
        return *done || (core_->tasks.stopped && core_->is_in_graphs);
    });
}

void Communicator::start_init(const ncclUniqueId& id, GroupRank own) {
    const std::lock_guard lock(core_->tasks.mutex);
    core_->tasks.waiting.emplace_back([core = core_.get(), id, own] { core->init(id, own); });
    core_->tasks.changed.notify_all();
}

bool Communicator::wait_ready(std::chrono::milliseconds wait) {
    std::unique_lock lock(core_->tasks.mutex);
    core_->tasks.changed.wait_until(lock, Clock::now() + wait,
                                    [&] { return core_->ready || core_->tasks.refusal; });
    if (core_->tasks.refusal) std::rethrow_exception(core_->tasks.refusal);
    return core_->ready;
}

bool Communicator::can_share(const NcclLibrary& library) {
    return can_block(library) && library.communicator.split != nullptr;
}

std::unique_ptr<Communicator> Communicator::make_sharer() const {
    return std::unique_ptr<Communicator>(new Communicator(
        std::make_shared<Core>(core_->library, core_->api, core_->device, core_->mutex)));
}

void Communicator::split(Communicator* sharer, int color, int key) {
    constexpr int no_color = -1;  // NCCL_SPLIT_NOCOLOR
    require_usable();
    ncclComm_t made = nullptr;
    const ncclResult_t result = core_->library.communicator.split(
        core_->comm, sharer != nullptr ? color : no_color, key, &made, nullptr);
    if (sharer != nullptr) sharer->core_->comm = made;
    if (core_->cancelled) throw Cancelled{};
    check(result, "ncclCommSplit");
    if (sharer != nullptr) sharer->core_->ready = true;
}

Communicator::Launch::Launch(Communicator& communicator)
    : lock_(*communicator.core_->mutex),
      device_(communicator.core_->api, communicator.core_->device) {}

void Communicator::require_usable() const {
    if (core_->cancelled || core_->comm == nullptr) throw Cancelled{};
}

bool Communicator::blocks() const noexcept { return core_->blocks(); }

void Communicator::launch_group(const Enqueue& enqueue) {
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
    if (core.cancelled) throw Cancelled{};    // whatever NCCL says of it
    if (error) std::rethrow_exception(error);
    wait_while_in_progress(ended, "ncclGroupEnd");
}

void* Communicator::register_memory(void* memory, std::size_t bytes) {
    wait_for_program();
    constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
    const NcclMemoryCalls& calls = core_->library.memory;
    if (calls.register_window != nullptr) {
        ncclWindow_vidmem* window = nullptr;
        const auto result = calls.register_window(core_->comm, memory, bytes, &window, symmetric);
        if (core_->cancelled) throw Cancelled{};
        check(result, "ncclCommWindowRegister");
        return window;
    }
    void* handle = nullptr;
    if (calls.register_buffer != nullptr) {
        check(calls.register_buffer(core_->comm, memory, bytes, &handle), "ncclCommRegister");
    }
    return handle;
}

void Communicator::deregister_memory(void* handle) noexcept {
    std::unique_lock lock(*core_->mutex, std::defer_lock);
    for (Pauses pauses; !core_->cancelled && !lock.try_lock();) pauses.pause();
    if (core_->cancelled || core_->comm == nullptr) return;
    const NcclMemoryCalls& calls = core_->library.memory;
    if (calls.register_window != nullptr) {
        core_->log_failure(
            "ncclCommWindowDeregister",
            calls.deregister_window(core_->comm, static_cast<ncclWindow_vidmem*>(handle)));
    } else {
        core_->log_failure("ncclCommDeregister", calls.deregister_buffer(core_->comm, handle));
    }
}

void Communicator::wait_for_program() {
    if (!std::exchange(core_->called_by_program, false)) return;
    wait_while_in_progress(core_->state(), "the program's own call");
}

void Communicator::wait_while_in_progress(ncclResult_t now, const char* call) const {
    for (Pauses pauses; now == ncclInProgress; now = core_->state()) {
        if (core_->cancelled) throw Cancelled{};
        pauses.pause();
    }
    check(now, call);
}

void Communicator::check(ncclResult_t result, const char* call) const {
    core_->check(result, call);
}

std::exception_ptr Communicator::find_async_error() {
    const std::unique_lock lock(*core_->mutex, std::try_to_lock);
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
    return run_on_thread([core = core_.get()] { core->abort(); }, limit);
}

bool Communicator::leave(std::chrono::milliseconds limit) noexcept {
    const bool done = run_on_thread([core = core_.get()] { core->leave(); }, limit);
    return done && core_->comm == nullptr;
}

void Communicator::note_graph() noexcept { core_->is_in_graphs = true; }

bool Communicator::is_in_graphs() const noexcept { return core_->is_in_graphs; }

ncclComm_t Communicator::handle() const noexcept { return core_->comm; }

ncclComm_t Communicator::handle_for_program() noexcept {
    core_->called_by_program = true;
    return core_->comm;
}

}  // namespace ddp::nccl
