#include "backends/gloo/transport/ucx_progress.hpp"

#include "base/process/background_thread.hpp"

#include <poll.h>
#include <sched.h>

#include <chrono>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

// How long a wait polls before it sleeps.
constexpr auto polling_time = 200us;
constexpr auto tick = 20ms;

}  // namespace

UcxProgress::~UcxProgress() {
    {
        const Lock held = lock();
        ending_ = true;
        background_needed_.notify_all();
    }
    if (background_.joinable()) background_.join();
}

// A thread that polls takes the mutex again and again, so the others say that they want it.
UcxProgress::Lock UcxProgress::lock() {
    contenders_.fetch_add(1, std::memory_order_relaxed);
    Lock held(mutex_);
    contenders_.fetch_sub(1, std::memory_order_relaxed);
    return held;
}

UcxProgress::Waiter::~Waiter() {
    --progress_.waiters_;
    if (progress_.background_is_needed()) progress_.background_needed_.notify_all();
}

bool UcxProgress::advance(Lock& held) {
    const bool moved = !stopped_ && ucx().worker.progress(worker()) != 0;
    if (moved) idle_since_.reset();
    if (moved) wake_others();
    if (contenders_.load(std::memory_order_relaxed) > 0) {
        held.unlock();
        ::sched_yield();
        held = lock();
    }
    return moved;
}

// What has moved may be theirs. The kernel shows the sleeper nothing that is already read.
void UcxProgress::wake_others() {
    if (waiters_ > 0) changed_.notify_all();
    if (!somebody_sleeps_ || sleeper_is_woken_) return;
    sleeper_is_woken_ = true;
    ucx().worker.signal(worker());
}

void UcxProgress::rest(Lock& held) {
    const Clock::time_point now = Clock::now();
    if (!idle_since_) idle_since_ = now;
    if (now - *idle_since_ > polling_time) return sleep(held);
    held.unlock();
    ::sched_yield();
    held = lock();
}

// One thread sleeps in the kernel, the others until it has seen something.
void UcxProgress::sleep(Lock& held) {
    if (somebody_sleeps_) {
        changed_.wait_for(held, tick);
        return;
    }
    if (ucx().worker.arm(worker()) != UCS_OK) return;  // something has come
    somebody_sleeps_ = true;
    sleeper_is_woken_ = false;
    held.unlock();
    pollfd entry{worker_->event_descriptor(), POLLIN, 0};
    ::poll(&entry, 1, std::chrono::milliseconds(tick).count());
    held = lock();
    somebody_sleeps_ = false;
    if (waiters_ > 0) changed_.notify_all();
}

void UcxProgress::advance_in_background() {
    if (requests_ == 0 || stopped_) return;
    if (!background_.joinable()) {
        background_ = base::start_background_thread([this] { run_in_background(); });
    }
    background_needed_.notify_all();
}

void UcxProgress::run_in_background() noexcept {
    Lock held = lock();
    while (!ending_) {
        if (!background_is_needed()) {
            background_needed_.wait(held, [this] { return ending_ || background_is_needed(); });
        } else if (!advance(held)) {
            sleep(held);
        }
    }
}

ucs_status_t UcxProgress::finish(void*& request) const {
    if (request == nullptr) return UCS_OK;
    const ucs_status_t status = ucx().request.check_status(request);
    if (status == UCS_INPROGRESS) return status;
    ucx().request.free(request);
    request = nullptr;
    return status;
}

void* UcxProgress::start_flush() const {
    const ucp_request_param_t nothing{};
    void* const flush = ucx().worker.flush_nbx(worker(), &nothing);
    return UCS_PTR_IS_PTR(flush) ? flush : nullptr;
}

void UcxProgress::abandon(std::vector<void*>& requests) const {
    for (void*& request : requests) {
        if (finish(request) != UCS_INPROGRESS) continue;
        ucx().request.cancel(worker(), request);
        ucx().request.free(request);  // when it is over
    }
    requests.clear();
}

}  // namespace ddp::gloo
