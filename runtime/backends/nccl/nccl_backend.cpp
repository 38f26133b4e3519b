#include "backends/nccl/nccl_backend.hpp"

#include "backends/call_header.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;
using backends::Call;
using backends::Transfer;

// The same error, of the same kind, that also says in what operation.
std::exception_ptr name_operation(std::exception_ptr error, const std::string& what) {
    try {
        std::rethrow_exception(error);
    } catch (const BackendError& known) {
        const std::string text = std::string(known.what()).substr(known.library().size() + 2);
        return std::make_exception_ptr(
            BackendError(known.library(), known.code(), what + ": " + text));
    } catch (const TimeoutError& known) {
        return std::make_exception_ptr(
            TimeoutError("nccl: " + what + ": " + known.what(), known.culprit()));
    } catch (...) {
        return std::current_exception();
    }
}

}  // namespace

// The mistake of one call: NCCL has not been asked, and the other ranks wait for a call that may
// still come.
struct NcclBackend::BadCall {
    std::exception_ptr error;
};

// Made and destroyed with the device current.
struct NcclBackend::Streams {
    explicit Streams(const Setup& setup) : api(setup.api), device(setup.device) {
        const device::CurrentGpu scope(api, device);
        own = api.make_stream(device::Priority::high);
        try {
            before = api.make_event();
        } catch (...) {
            api.destroy_stream(own);
            throw;
        }
    }
    ~Streams() {
        device::give_back_on(api, device, [this] {
            api.destroy_event(before);
            api.destroy_stream(own);
        });
    }
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;

    device::DeviceApi& api;
    int device;
    CUstream_st* own = nullptr;
    CUevent_st* before = nullptr;  // what a launch comes after
};

NcclBackend::NcclBackend(Setup setup, std::shared_ptr<Communicator> communicator,
                         std::shared_ptr<GroupFamily> family)
    : setup_(std::move(setup)),
      communicator_(std::move(communicator)),
      streams_(std::make_unique<Streams>(setup_)),
      events_(std::make_shared<EventPool>(setup_.api, setup_.device)),
      family_(std::move(family)),
      group_abort_(family_->group_abort()),
      launcher_(setup_.library, setup_.api, *communicator_, setup_.own, setup_.averaging,
                streams_->own),
      watchdog_({[this](const std::string& during) { return find_trouble(during); },
                 [this](const std::string& during) { return find_async_error(during); },
                 setup_.name, [this] { setup_.api.use(setup_.device); }},
                [this](std::exception_ptr error, Watchdog::Finder finder) {
                    family_->end(error, finder);
                }) {
    family_->join(*this);
}

NcclBackend::~NcclBackend() {
    watchdog_.wait_until_completed();
    watchdog_.stop();
    if (group_abort_->is_set()) group_abort_->wait_until_aborted();
    if (setup_.recorder) setup_.recorder->end(contract::GroupEnd::left);
    family_->part(*this);
}

std::shared_ptr<backends::DeviceOperation> NcclBackend::launch(std::span<const Call> calls,
                                                               Stream after,
                                                               std::chrono::milliseconds timeout) {
    for (const Call& call : calls) require_supported(call, setup_.own.rank);
    return launch_all(calls, after, timeout);
}

backends::LaunchOrder NcclBackend::launch_order() const {
    const std::lock_guard lock(order_mutex_);
    return order_;
}

// Transfers are matched by their two ranks alone.
void NcclBackend::note_order(std::span<const Call> calls) {
    const std::lock_guard lock(order_mutex_);
    for (const Call& call : calls) order_.add(call);
}

std::shared_ptr<backends::DeviceOperation> NcclBackend::launch(std::span<const Transfer> transfers,
                                                               Stream after,
                                                               std::chrono::milliseconds timeout) {
    return launch_all(transfers, after, timeout);
}

template <class Item>
std::shared_ptr<backends::DeviceOperation> NcclBackend::launch_all(
    std::span<const Item> items, Stream after, std::chrono::milliseconds timeout) {
    require_healthy();
    const base::Deadline deadline = base::Deadline::after(timeout);
    std::shared_ptr<InFlightOperation> operation;
    std::exception_ptr error;
    OperationInfo info(items, 0);
    {
        const Communicator::Launch launch(*communicator_);
        info.sequence = sequence_ + 1;
        try {
            const Place place = place_of(after);
            if (place == Place::in_graph) communicator_->note_graph();
            operation = start_operation(info, deadline, place);
            come_after(after);
            ++sequence_;
            note_order(items);
            record(items, *operation);
            launcher_.launch(items);
            operation->record_end(streams_->own);
        } catch (const Communicator::Cancelled&) {  // the group has ended meanwhile
        } catch (const BadCall& bad) {
            if (operation) operation->abort();
            std::rethrow_exception(bad.error);
        } catch (...) {
            error = std::current_exception();
        }
    }
    if (!error && !group_abort_->is_set()) return operation;
    if (operation) operation->abort();  // the thread that ended the group may not have known of it
    if (error) end_after_launch(info.describe(), error);
    group_abort_->raise();
}

// What goes into a graph is not seen when it runs.
void NcclBackend::record(std::span<const backends::Call> calls, InFlightOperation& operation) {
    if (!setup_.recorder || operation.is_in_graph()) return;
    const backends::Call& first = calls.front();
    operation.record_in(setup_.recorder, setup_.recorder->launched(backends::signature_of(first),
                                                                   first.site_in_program(),
                                                                   operation.deadline().start()));
}

void NcclBackend::record(std::span<const backends::Transfer>, InFlightOperation& operation) {
    if (!setup_.recorder || operation.is_in_graph()) return;
    operation.record_in(setup_.recorder, setup_.recorder->launched_transfer());
}

std::vector<std::string> NcclBackend::abort_operations() noexcept {
    if (setup_.recorder) setup_.recorder->end(contract::GroupEnd::failed);
    return watchdog_.abort_all();
}

// The watchdog lets this thread go if NCCL or CUDA keeps it.
std::shared_ptr<InFlightOperation> NcclBackend::start_operation(OperationInfo info,
                                                                const base::Deadline& deadline,
                                                                Place place) {
    auto operation = std::allocate_shared<InFlightOperation>(operations_, events_, group_abort_,
                                                             std::move(info), deadline, place);
    watchdog_.watch(operation);
    return operation;
}

// A stream that does not exist, or is another GPU's, or what a capture forbids.
template <class Ask>
auto NcclBackend::of_callers_stream(const Ask& ask) {
    constexpr int invalid_handle = 400;  // cudaErrorInvalidResourceHandle
    constexpr int first_of_captures = 900;
    constexpr int last_of_captures = 908;
    try {
        return ask();
    } catch (const BackendError& error) {
        const bool is_of_capture =
            error.code() >= first_of_captures && error.code() <= last_of_captures;
        if (error.code() != invalid_handle && !is_of_capture) throw;
        const std::string why = is_of_capture
                                    ? "a capture is in the way of the call"
                                    : "the stream of the call is none of " + to_string(device());
        throw BadCall{
            std::make_exception_ptr(UsageError("nccl: " + why + " (" + error.what() + ")"))};
    }
}

// A graph is captured on the caller's streams and the group's own, which leaves none for others.
NcclBackend::Place NcclBackend::place_of(Stream after) {
    const bool captured = of_callers_stream([&] { return setup_.api.is_captured(after); });
    const auto refuse = [](const std::string& why) {
        throw BadCall{std::make_exception_ptr(UsageError("nccl: " + why))};
    };
    if (captured && !communicator_->blocks()) {
        refuse("a call on a stream that is captured needs NCCL 2.22 or newer; this is " +
               version_text(setup_.library.version));
    }
    if (!captured && is_captured_ && setup_.api.is_captured(streams_->own)) {
        refuse(
            "a graph is captured with this group: until its capture ends, calls are for the "
            "streams that are captured");
    }
    is_captured_ = captured;
    return captured ? Place::in_graph : Place::on_stream;
}

void NcclBackend::come_after(Stream after) {
    of_callers_stream([&] {
        setup_.api.record(streams_->before, after);
        setup_.api.wait(streams_->own, streams_->before);
    });
}

void NcclBackend::require_healthy() const {
    if (group_abort_->is_set()) group_abort_->raise();
}

// Alone in the communicator, and let go when the group ends or the time is up.
void NcclBackend::call_nccl(const char* what, std::chrono::milliseconds timeout,
                            const std::function<void()>& call) {
    require_healthy();
    std::shared_ptr<InFlightOperation> operation;
    try {
        const Communicator::Launch launch(*communicator_);
        communicator_->require_usable();
        operation =
            start_operation(OperationInfo(what), base::Deadline::after(timeout), Place::on_stream);
        const auto ended = [](InFlightOperation* one) { one->abort(); };
        const std::unique_ptr<InFlightOperation, decltype(ended)> scope(operation.get(), ended);
        call();
    } catch (const Communicator::Cancelled&) {  // the group has ended meanwhile
    }
    if (group_abort_->is_set()) group_abort_->raise();
}

void NcclBackend::with_native_handle(const std::function<void(void*)>& use,
                                     std::chrono::milliseconds timeout) {
    call_nccl("the program's own call of NCCL", timeout,
              [&] { use(communicator_->handle_for_program()); });
}

// Where NCCL refuses on one rank, it waits on the others: the group ends.
std::shared_ptr<void> NcclBackend::register_memory(std::shared_ptr<void> memory, std::size_t bytes,
                                                   std::chrono::milliseconds timeout) {
    if (!setup_.registers_memory || bytes == 0) return memory;
    const char* const what = "the registration of memory (DDP_NCCL_REGISTER)";
    void* handle = nullptr;
    std::exception_ptr error;
    call_nccl(what, timeout, [&] {
        try {
            handle = communicator_->register_memory(memory.get(), bytes);
        } catch (const BackendError&) {
            error = std::current_exception();
        }
    });
    if (error) end_after_launch(what, error);
    require_healthy();
    if (handle == nullptr) return memory;
    // It may outlive the group, and the communicator, which lets go of it then.
    const auto let_go = [memory, handle, known_by = std::weak_ptr<Communicator>(communicator_),
                         &api = setup_.api, index = setup_.device](void*) mutable {
        if (const auto communicator = known_by.lock()) {
            device::give_back_on(api, index, [&] {
                api.synchronize_device();
                communicator->deregister_memory(handle);
            });
        }
        memory.reset();
    };
    return {memory.get(), let_go};
}

std::exception_ptr NcclBackend::find_trouble(const std::string& during) noexcept {
    return setup_.cpu ? setup_.cpu->find_trouble(during) : nullptr;
}

std::exception_ptr NcclBackend::find_async_error(const std::string& during) {
    const std::exception_ptr error = communicator_->find_async_error();
    return error ? name_operation(error, during) : nullptr;
}

// NCCL connects to its peers when it first needs them: that fails when one of them is dead, of
// which the CPU half says more.
void NcclBackend::end_after_launch(const std::string& what, std::exception_ptr error) noexcept {
    const base::Deadline deadline = base::Deadline::after(peer_grace);
    while (!deadline.passed()) {
        if (const std::exception_ptr trouble = find_trouble(what)) {
            return family_->end(trouble, Watchdog::Finder::other_rank);
        }
        if (!setup_.cpu) break;
        std::this_thread::sleep_for(5ms);
    }
    family_->end(name_operation(error, what), Watchdog::Finder::this_rank);
}

void NcclBackend::tell_others(Watchdog::Finder finder) noexcept {
    if (!setup_.cpu) return;
    switch (finder) {
        case Watchdog::Finder::this_rank:
            return setup_.cpu->fail();
        case Watchdog::Finder::other_rank:
            setup_.cpu->pass_on_trouble();
            return setup_.cpu->fail();  // the trouble may be of another group that shares
    }
}

// Where NCCL refuses on one rank, it waits on the others: the family ends.
std::shared_ptr<backends::SharedResources> NcclBackend::split(const backends::SplitPart& part,
                                                              std::chrono::milliseconds timeout) {
    const char* const what = "the split of its communicator (DDP_NCCL_SHARE)";
    const std::shared_ptr<Communicator> made = communicator_->make_sharer();
    family_->keep(made);
    std::exception_ptr error;
    call_nccl(what, timeout, [&] {
        try {
            communicator_->split(*made, part.number, part.rank);
        } catch (const BackendError&) {
            error = std::current_exception();
        }
    });
    if (error) end_after_launch(what, error);
    require_healthy();
    auto shared = std::make_shared<SharedResources>();
    shared->family = family_;
    shared->communicator = made;
    return shared;
}

// Unless a capture is on it.
void NcclBackend::finish_own_stream(const base::Deadline& deadline) noexcept {
    try {
        const device::CurrentGpu scope(setup_.api, setup_.device);
        if (setup_.api.is_captured(streams_->own)) return;
        while (!setup_.api.is_done(Stream(streams_->own)) && !deadline.passed()) {
            std::this_thread::sleep_for(1ms);
        }
    } catch (const Error&) {  // of the device, which runs nothing any more
    }
}

std::shared_ptr<void> NcclBackend::allocate(std::size_t bytes) {
    const std::size_t wanted = std::max(bytes, std::size_t{1});
    device::DeviceApi& api = setup_.api;
    const device::CurrentGpu scope(api, setup_.device);
    std::shared_ptr<void> memory;
    if (setup_.library.memory.alloc != nullptr && setup_.library.memory.free != nullptr) {
        void* made = nullptr;
        if (setup_.library.memory.alloc(&made, wanted) != ncclSuccess) {
            throw SystemError("nccl: allocate " + std::to_string(bytes) + " bytes on " +
                                  to_string(device()) + " of " + setup_.name,
                              ENOMEM);
        }
        // As cudaFree does: ncclMemFree takes it from under what still runs.
        memory = {made,
                  [free = setup_.library.memory.free, &api, index = setup_.device](void* data) {
                      device::give_back_on(api, index, [&] {
                          api.synchronize_device();
                          free(data);
                      });
                  }};
    } else {
        memory = {api.allocate(wanted), [&api, index = setup_.device](void* data) {
                      device::give_back_on(api, index, [&] { api.free(data); });
                  }};
    }
    // On a stream that no collective holds up.
    const std::unique_ptr<CUstream_st, std::function<void(CUstream_st*)>> stream(
        api.make_stream(device::Priority::normal),
        [&api](CUstream_st* one) { api.destroy_stream(one); });
    api.set_zero(memory.get(), wanted, stream.get());
    api.synchronize(stream.get());
    return memory;
}

}  // namespace ddp::nccl
