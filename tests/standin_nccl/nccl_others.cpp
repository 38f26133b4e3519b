// NCCL's functions on the version, errors and reductions of one's own.
#include "standin_nccl/handle.hpp"

#include <cstring>

using stand_in::Call;
using stand_in::failed;
using stand_in::misuse;
using stand_in::Needs;

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
    } else if (stand_in::owns(call, scalar, size)) {
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
