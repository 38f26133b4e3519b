#include "standin_nccl/handle.hpp"

#include <map>
#include <mutex>
#include <string>

namespace stand_in {

namespace {
struct Handles {
    std::mutex mutex;
    std::map<ncclComm_t, std::unique_ptr<ncclComm>> all;
};

Handles& handles() {
    static Handles* const only = new Handles;  // streams of ours may outlive static objects
    return *only;
}

bool is_handle(ncclComm_t comm) {
    const std::lock_guard lock(handles().mutex);
    return handles().all.contains(comm);
}
}  // namespace

ncclComm_t make_handle(std::shared_ptr<Communicator> communicator) {
    auto made = std::make_unique<ncclComm>();
    made->communicator = std::move(communicator);
    const std::lock_guard lock(handles().mutex);
    ncclComm_t const handle = made.get();
    handles().all.emplace(handle, std::move(made));
    return handle;
}

Call::Call(const char* function, ncclComm_t comm, Needs needs) {
    count_call(function);
    if (!is_handle(comm)) {
        result_ = failed(ncclInvalidArgument, std::string(function) + ": no such communicator");
        return;
    }
    comm_ = comm;
    if (comm->gone) {
        result_ = misuse(std::string(function) + " after Destroy or Abort");
    } else if (needs == Needs::flags) {
        return;
    } else if (comm->inside.exchange(true)) {
        result_ = misuse(std::string(function) + " while another thread is in the communicator");
    } else {
        entered_ = true;
        result_ = check(function, needs);
    }
}

bool owns(const Call& call, const void* memory, std::size_t size) {
    const ddp_host_driver* const driver = find_driver();
    return driver != nullptr && driver->owns(call->seat().device, memory, size) != 0;
}

Call::~Call() {
    if (entered_) comm_->inside = false;
}

ncclResult_t Call::check(const char* function, Needs needs) {
    const Communicator& communicator = *comm_->communicator;
    const std::string name = function;
    if (needs == Needs::life) return ncclSuccess;
    if (communicator.error() != ncclSuccess) {
        return failed(communicator.error(), communicator.error_text());
    }
    if (communicator.is_in_progress()) return misuse(name + " in progress: poll GetAsyncError");
    if (needs == Needs::readiness) return ncclSuccess;
    if (communicator.is_revoked()) return failed(ncclInvalidUsage, name + " after Revoke");
    if (communicator.is_finalized()) return misuse(name + " after Finalize");
    if (communicator.is_spoiled()) return misuse(name + after_a_sharer);
    const ddp_host_driver* const driver = find_driver();
    const int device = communicator.seat().device;
    if (driver != nullptr && driver->current_device() != device) {
        return misuse(name + ": device " + std::to_string(driver->current_device()) +
                      " is current, the communicator's is " + std::to_string(device));
    }
    return ncclSuccess;
}

}  // namespace stand_in
