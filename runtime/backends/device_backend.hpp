// The seam between process groups and what moves the memory of accelerators (NCCL). Unlike Backend
// it launches at once, on the caller's thread, in the order of the calls: what it launches runs on
// a stream of its own, after the work already on the stream it is given.
#pragma once

#include "backends/backend.hpp"
#include "base/deadline.hpp"

#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ddp::backends {

// A launched operation. Let go of only when completed or failed.
class DeviceOperation {
public:
    virtual ~DeviceOperation() = default;
    // Ended, well or not. Never blocks.
    virtual bool is_completed() const noexcept = 0;
    // Blocks the host; throws what ended the group: PeerError, TimeoutError, BackendError.
    virtual void wait() = 0;
    // What is put on `stream` from now on runs after the operation; the host goes on. Throws as
    // wait() when the group has failed already.
    virtual void wait(Stream stream) = 0;
};

class DeviceBackend {
public:
    virtual ~DeviceBackend() = default;

    virtual Device device() const = 0;
    // All of `calls` as one operation (coalesced tensors are many calls), timed out `timeout` from
    // now. Any thread; all ranks in the same order. Throws the group's error once it has failed.
    virtual std::unique_ptr<DeviceOperation> launch(std::span<const Call> calls, Stream after,
                                                    std::chrono::milliseconds timeout) = 0;
    // A batch of point-to-point transfers, in the same order of operations as the collectives.
    virtual std::unique_ptr<DeviceOperation> launch(std::span<const Transfer> transfers,
                                                    Stream after,
                                                    std::chrono::milliseconds timeout) = 0;
    // Zeroed memory of this rank's device that collectives use best (ncclMemAlloc). Collective.
    virtual std::shared_ptr<void> allocate(std::size_t bytes, const base::Deadline& deadline) = 0;
    // The group's other half has failed, or a peer has died: nothing here ends well any more.
    virtual void fail(std::exception_ptr error) noexcept = 0;
    // ncclComm_t, for ddp/nccl.hpp.
    virtual void* native_handle() = 0;
};

}  // namespace ddp::backends
