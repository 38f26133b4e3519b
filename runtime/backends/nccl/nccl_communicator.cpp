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
#include <vector>

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

// What the threads have to do.
struct Communicator::Tasks {
    std::mutex mutex;
    std::condition_variable changed;  // a task has come or ended, the init has
    std::deque<std::function<void()>> waiting;
    bool closing = false;
    bool stopped = false;  // by abort: nobody is inside NCCL any more
    std::exception_ptr refusal;
};

// Of those that share resources, or of one alone: what they have in common.
struct Communicator::Joint {
    Joint(const NcclLibrary& library_, device::DeviceApi& api_, int device_)
        : library(library_), api(api_), device(device_) {}

    const NcclLibrary& library;
    device::DeviceApi& api;
    int device;
    std::mutex calls;  // to NCCL, but for the flags
    std::atomic<bool> cancelled = false;
    std::atomic<bool> is_in_graphs = false;
    Tasks tasks;
    std::vector<std::shared_ptr<Core>> cores;  // as they were made; under the mutex of `tasks`

    bool blocks() const { return can_block(library); }
    void run() noexcept;
    void close();
    void add(std::shared_ptr<Core> core);
    std::vector<std::shared_ptr<Core>> all();
    void leave() noexcept;
    void abort() noexcept;
    void stop(std::vector<ncclComm_t>& stopped) noexcept;
    void log_failure(const char* call, ncclResult_t result) const;
};

// Of one communicator.
struct Communicator::Core {
    explicit Core(Joint& joint_) : joint(joint_) {}

    Joint& joint;  // which has it
    bool lends = false;
    std::atomic<ncclComm_t> comm = nullptr;
    ncclComm_t made = nullptr;            // NCCL before 2.18 reads it until the init is done
    std::atomic<bool> end_begun = false;  // by destroy or abort: NCCL bears one of them
    bool called_by_program = false;       // since the last launch
    std::atomic<bool> ready = false;

    void init(const ncclUniqueId& id, GroupRank own);
    void join(const ncclUniqueId& id, GroupRank own);
    bool leave() noexcept;
    ncclResult_t state() const;
    bool poll_until_ended() const noexcept;
    void check(ncclResult_t result, const char* call) const;
};

void Communicator::Joint::run() noexcept {
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

void Communicator::Joint::close() {
    const std::lock_guard lock(tasks.mutex);
    tasks.closing = true;
    tasks.changed.notify_all();
}

void Communicator::Joint::add(std::shared_ptr<Core> core) {
    const std::lock_guard lock(tasks.mutex);
    cores.push_back(std::move(core));
}

std::vector<std::shared_ptr<Communicator::Core>> Communicator::Joint::all() {
    const std::lock_guard lock(tasks.mutex);
    return cores;
}

void Communicator::Core::check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const more = joint.library.get_last_error(comm);
    throw BackendError(
        "nccl", static_cast<int>(result),
        std::string(call) + ": " + joint.library.get_error_string(result) +
            (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : "") +
            "; NCCL_DEBUG=WARN tells more");
}

// Under the mutex.
ncclResult_t Communicator::Core::state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = joint.library.communicator.get_async_error(comm, &state);
    return asked == ncclSuccess ? state : asked;
}

// In a group: outside of one the communicator would be known when the init has ended, too late for
// abort.
void Communicator::Core::join(const ncclUniqueId& id, GroupRank own) {
    const std::lock_guard lock(joint.calls);
    if (joint.cancelled) return;
    joint.api.use(joint.device);
    const NcclLibrary& library = joint.library;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = joint.blocks() ? 1 : 0;
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
        while (now == ncclInProgress && !joint.cancelled) {
            {
                const std::lock_guard lock(joint.calls);
                if (comm == nullptr) break;  // aborted
                now = state();
                check(now, "ncclCommInitRankConfig");
            }
            if (now == ncclInProgress) pauses.pause();
        }
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard lock(joint.tasks.mutex);
    joint.tasks.refusal = error;
    ready = !error && !joint.cancelled;
    joint.tasks.changed.notify_all();
}

// Under the mutex. What NCCL does in the background has ended by itself; false: cancelled before.
bool Communicator::Core::poll_until_ended() const noexcept {
    for (Pauses pauses; state() == ncclInProgress; pauses.pause()) {
        if (joint.cancelled) return false;
    }
    return true;
}

void Communicator::Joint::log_failure(const char* call, ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    if (!base::log_enabled(base::LogLevel::debug)) return;
    base::log_debug("nccl", std::string(call) + ": " + library.get_error_string(result));
}

// Under the mutex. Leaves the communicator to abort unless all went well.
bool Communicator::Core::leave() noexcept {
    if (comm == nullptr || joint.cancelled) return false;
    if (called_by_program && !poll_until_ended()) return false;
    const ncclResult_t result = joint.library.communicator.finalize(comm);
    joint.log_failure("ncclCommFinalize", result);
    if (result != ncclSuccess && result != ncclInProgress) return false;
    if (!poll_until_ended() || state() != ncclSuccess || end_begun.exchange(true)) return false;
    joint.log_failure("ncclCommDestroy",
                      joint.library.communicator.destroy(comm.exchange(nullptr)));
    return true;
}

void Communicator::Joint::leave() noexcept {
    const std::lock_guard lock(calls);
    const auto leaving = all();
    // Before the look at `cancelled`: NCCL revokes nothing that is being finalized.
    for (const auto& core : leaving) core->ready = false;
    for (const auto& core : leaving) {
        if (!core->leave()) return;
    }
}

// In a group of NCCL's: sets the flags of those that have not ended, and notes those that are yet
// to be aborted. NCCL's revoke is orderly: kernels in flight end first. But an abort after it frees
// what graphs still refer to; one alone waits for their end.
void Communicator::Joint::stop(std::vector<ncclComm_t>& stopped) noexcept {
    for (const auto& core : all()) {
        const ncclComm_t comm = core->comm;
        if (comm == nullptr || core->end_begun.exchange(true)) continue;
        const bool is_revoked = library.communicator.revoke != nullptr && core->ready &&
                                !is_in_graphs &&
                                library.communicator.revoke(comm, 0) == ncclSuccess;
        if (is_revoked) {
            stopped.push_back(comm);
        } else {
            log_failure("ncclCommAbort", library.communicator.abort(comm));
        }
    }
}

// Who is inside NCCL with the mutex returns once the flags of all are set.
void Communicator::Joint::abort() noexcept {
    std::unique_lock lock(calls, std::defer_lock);
    const auto first = all().front();
    for (Pauses pauses; first->comm == nullptr && !first->end_begun && !lock.try_lock();) {
        pauses.pause();  // init makes it soon
    }
    std::vector<ncclComm_t> stopped;
    if (blocks()) {
        library.operations.group_start();
        stop(stopped);
    }
    if (!lock) lock.lock();
    if (blocks()) {
        stop(stopped);  // what was split off meanwhile
    } else if (first->comm != nullptr && !first->end_begun.exchange(true)) {
        stopped.push_back(first->comm);
    }
    for (const auto& core : all()) core->comm = nullptr;
    {
        const std::lock_guard inner(tasks.mutex);
        tasks.stopped = true;
        tasks.changed.notify_all();
    }
    lock.unlock();  // NCCL may wait for graphs now, and others for the mutex
    if (blocks()) log_failure("ncclGroupEnd", library.operations.group_end());
    for (const ncclComm_t comm : stopped) {
        log_failure("ncclCommAbort", library.communicator.abort(comm));
    }
}

Communicator::Communicator(const NcclLibrary& library, device::DeviceApi& api, int device,
                           bool lends)
    : joint_(std::make_shared<Joint>(library, api, device)),
      core_(std::make_shared<Core>(*joint_)),
      has_threads_(true) {
    core_->lends = lends;
    joint_->add(core_);
    try {
        for (int i = 0; i < 2; ++i) {  // abort comes while init or leave is inside NCCL
            base::start_background_thread([joint = joint_] { joint->run(); }).detach();
        }
    } catch (...) {
        joint_->close();
        throw;
    }
}

Communicator::~Communicator() {
    if (!has_threads_) return;
    if (!has_left() && !joint_->cancelled) {
        cancel();
        abort(1s);
    }
    joint_->close();
}

bool Communicator::has_left() const {
    return std::ranges::all_of(joint_->all(),
                               [](const auto& core) { return core->comm == nullptr; });
}

bool Communicator::run_on_thread(std::function<void()> task,
                                 std::chrono::milliseconds limit) noexcept {
    const auto done = std::make_shared<bool>(false);
    Tasks& tasks = joint_->tasks;
    std::unique_lock lock(tasks.mutex);
    tasks.waiting.emplace_back([joint = joint_, task = std::move(task), done] {
        task();
        const std::lock_guard inner(joint->tasks.mutex);
        *done = true;
        joint->tasks.changed.notify_all();
    });
    tasks.changed.notify_all();
    return tasks.changed.wait_until(lock, Clock::now() + limit, [&] {
        return *done || (tasks.stopped && joint_->is_in_graphs);
    });
}

void Communicator::start_init(const ncclUniqueId& id, GroupRank own) {
    Tasks& tasks = joint_->tasks;
    const std::lock_guard lock(tasks.mutex);
    tasks.waiting.emplace_back([core = core_.get(), id, own] { core->init(id, own); });
    tasks.changed.notify_all();
}

bool Communicator::wait_ready(std::chrono::milliseconds wait) {
    Tasks& tasks = joint_->tasks;
    std::unique_lock lock(tasks.mutex);
    tasks.changed.wait_until(lock, Clock::now() + wait,
                             [&] { return core_->ready || tasks.refusal; });
    if (tasks.refusal) std::rethrow_exception(tasks.refusal);
    return core_->ready;
}

bool Communicator::can_share(const NcclLibrary& library) {
    return can_block(library) && library.communicator.split != nullptr;
}

std::unique_ptr<Communicator> Communicator::make_sharer() const {
    return std::unique_ptr<Communicator>(new Communicator(joint_, std::make_shared<Core>(*joint_)));
}

void Communicator::split(Communicator& sharer, int color, int key) {
    require_usable();
    ncclComm_t made = nullptr;
    const ncclResult_t result =
        joint_->library.communicator.split(core_->comm, color, key, &made, nullptr);
    sharer.core_->comm = made;
    sharer.core_->ready = result == ncclSuccess;
    joint_->add(sharer.core_);  // abort, which may wait for this, has it then
    if (joint_->cancelled) throw Cancelled{};
    check(result, "ncclCommSplit");
}

Communicator::Launch::Launch(Communicator& communicator)
    : lock_(communicator.joint_->calls),
      device_(communicator.joint_->api, communicator.joint_->device) {}

void Communicator::require_usable() const {
    if (joint_->cancelled || core_->comm == nullptr) throw Cancelled{};
}

bool Communicator::blocks() const noexcept { return joint_->blocks(); }

void Communicator::launch_group(const Enqueue& enqueue) {
    require_usable();
    const NcclOperationCalls& calls = joint_->library.operations;
    const ncclComm_t comm = core_->comm;
    check(calls.group_start(), "ncclGroupStart");
    std::exception_ptr error;
    try {
        enqueue(comm);
    } catch (...) {
        error = std::current_exception();
    }
    const ncclResult_t ended = calls.group_end();  // whatever came: it is the thread's
    if (joint_->cancelled) throw Cancelled{};      // whatever NCCL says of it
    if (error) std::rethrow_exception(error);
    wait_while_in_progress(ended, "ncclGroupEnd");
}

void* Communicator::register_memory(void* memory, std::size_t bytes) {
    wait_for_program();
    constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
    const NcclMemoryCalls& calls = joint_->library.memory;
    if (calls.register_window != nullptr) {
        ncclWindow_vidmem* window = nullptr;
        const auto result = calls.register_window(core_->comm, memory, bytes, &window, symmetric);
        if (joint_->cancelled) throw Cancelled{};
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
    std::unique_lock lock(joint_->calls, std::defer_lock);
    for (Pauses pauses; !joint_->cancelled && !lock.try_lock();) pauses.pause();
    if (joint_->cancelled || core_->comm == nullptr) return;
    const NcclMemoryCalls& calls = joint_->library.memory;
    if (calls.register_window != nullptr) {
        joint_->log_failure(
            "ncclCommWindowDeregister",
            calls.deregister_window(core_->comm, static_cast<ncclWindow_vidmem*>(handle)));
    } else {
        joint_->log_failure("ncclCommDeregister", calls.deregister_buffer(core_->comm, handle));
    }
}

void Communicator::wait_for_program() {
    if (!std::exchange(core_->called_by_program, false)) return;
    wait_while_in_progress(core_->state(), "the program's own call");
}

void Communicator::wait_while_in_progress(ncclResult_t now, const char* call) const {
    for (Pauses pauses; now == ncclInProgress; now = core_->state()) {
        if (joint_->cancelled) throw Cancelled{};
        pauses.pause();
    }
    check(now, call);
}

void Communicator::check(ncclResult_t result, const char* call) const {
    core_->check(result, call);
}

std::exception_ptr Communicator::find_async_error() {
    const std::unique_lock lock(joint_->calls, std::try_to_lock);
    if (!lock || core_->comm == nullptr) return nullptr;
    try {
        core_->check(core_->state(), "an operation in the background");
    } catch (const BackendError&) {
        return std::current_exception();
    }
    return nullptr;
}

void Communicator::cancel() noexcept { joint_->cancelled = true; }

bool Communicator::abort(std::chrono::milliseconds limit) noexcept {
    return run_on_thread([joint = joint_.get()] { joint->abort(); }, limit);
}

bool Communicator::leave(std::chrono::milliseconds limit) noexcept {
    return run_on_thread([joint = joint_.get()] { joint->leave(); }, limit) && has_left();
}

void Communicator::note_graph() noexcept { joint_->is_in_graphs = true; }

bool Communicator::is_in_graphs() const noexcept { return joint_->is_in_graphs; }

ncclComm_t Communicator::handle() const noexcept { return core_->comm; }

ncclComm_t Communicator::handle_for_program() noexcept {
    core_->called_by_program = true;
    return core_->comm;
}

}  // namespace ddp::nccl
