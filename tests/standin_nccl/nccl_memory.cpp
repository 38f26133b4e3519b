// NCCL's functions on memory, reductions of one's own, the version and errors.
#include "standin_nccl/handle.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// What ncclWindow_t points to, and what a registration's handle is.
struct ncclWindow_vidmem {
    ncclComm_t comm;
    void* memory;
};

using stand_in::Call;
using stand_in::failed;
using stand_in::misuse;
using stand_in::Needs;

namespace {
bool owns(const Call& call, const void* memory, std::size_t size) {
    const ddp_host_driver* const driver = stand_in::find_driver();
    return driver != nullptr && driver->owns(call->seat().device, memory, size) != 0;
}

// The memory that communicators know of.
class Registry {
public:
    ncclWindow_t add(ncclComm_t comm, void* memory) {
        const std::lock_guard lock(mutex_);
        known_.push_back(std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{comm, memory}));
        return known_.back().get();
    }
    bool remove(ncclComm_t comm, const void* handle) {
        const std::lock_guard lock(mutex_);
        return std::erase_if(known_, [&](const auto& one) {
                   return one.get() == handle && one->comm == comm;
               }) == 1;
    }
    // To one that lives.
    bool is_known(const void* memory) {
        const std::lock_guard lock(mutex_);
        std::erase_if(known_, [](const auto& one) { return one->comm->gone.load(); });
        return std::ranges::any_of(known_, [&](const auto& one) { return one->memory == memory; });
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<ncclWindow_vidmem>> known_;
};
Registry& registry() {
    static Registry* const all = new Registry;  // communicators may outlive static objects
    return *all;
}
}  // namespace

ncclResult_t ncclGetVersion(int* version) {
    stand_in::count_call("ncclGetVersion");
    if (version == nullptr) return failed(ncclInvalidArgument, "ncclGetVersion: null");
    *version = stand_in::knobs().version;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInternalError:
            return "internal error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        case ncclNumResults:
            break;
    }
    return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
    if (comm != nullptr) {
        const Call call("ncclGetLastError", comm, Needs::life);
        if (!call.refused() && call->error() != ncclSuccess) {
            (void)failed(call->error(), call->error_text());
        }
    }
    return stand_in::last_error();
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
    stand_in::count_call("ncclMemAlloc");
    const ddp_host_driver* const driver = stand_in::find_driver();
    if (ptr == nullptr) return failed(ncclInvalidArgument, "ncclMemAlloc: null");
    if (driver == nullptr) return failed(ncclUnhandledCudaError, "there is no driver");
    void* const memory = driver->allocate(size);
    if (memory == nullptr && size > 0) return failed(ncclUnhandledCudaError, "out of memory");
    *ptr = memory;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void* ptr) {
    stand_in::count_call("ncclMemFree");
    const ddp_host_driver* const driver = stand_in::find_driver();
    if (driver == nullptr) return failed(ncclUnhandledCudaError, "there is no driver");
    if (registry().is_known(ptr)) return misuse("ncclMemFree of memory that is registered");
    driver->free(ptr);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
    const Call call("ncclCommRegister", comm, Needs::work);
    if (call.refused()) return call.result();
    if (!owns(call, buff, size)) return misuse("ncclCommRegister: not memory of the device");
    *handle = registry().add(comm, buff);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
    const Call call("ncclCommDeregister", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (!registry().remove(comm, handle)) return misuse("ncclCommDeregister: no such handle");
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int) {
    const Call call("ncclCommWindowRegister", comm, Needs::work);
    if (call.refused()) return call.result();
    if (!owns(call, buff, size)) return misuse("ncclCommWindowRegister: not the device's memory");
    *win = registry().add(comm, buff);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    const Call call("ncclCommWindowDeregister", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (!registry().remove(comm, win)) return misuse("ncclCommWindowDeregister: no such window");
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    const Call call("ncclRedOpCreatePreMulSum", comm, Needs::work);
    if (call.refused()) return call.result();
    const std::size_t size = stand_in::size_of(datatype);
    if (size == 0 || op == nullptr || scalar == nullptr) {
        return failed(ncclInvalidArgument, "ncclRedOpCreatePreMulSum");
    }
    stand_in::Reduction reduction{ncclNumOps};
    if (residence == ncclScalarHostImmediate) {
        std::memcpy(&reduction.factor, scalar, size);
    } else if (owns(call, scalar, size)) {
        reduction.factor_place = scalar;
    } else {
        return misuse("ncclRedOpCreatePreMulSum: the scalar is not memory of the device");
    }
    *op = call->add_reduction(reduction);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    const Call call("ncclRedOpDestroy", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (!call->remove_reduction(op)) return failed(ncclInvalidArgument, "no such reduction");
    return ncclSuccess;
}
