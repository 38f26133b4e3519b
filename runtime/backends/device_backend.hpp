// The seam between process groups and what moves the memory of accelerators (NCCL). Unlike Backend
// it launches at once, on the caller's thread, in the order of the calls: what it launches runs on
// a stream of its own, after the work already on the stream it is given.
#pragma once

#include "backends/backend.hpp"

#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace ddp::backends {

// A launched operation. May outlive its backend.
class DeviceOperation {
public:
    virtual ~DeviceOperation() = default;
    // Ended, well or not. Never blocks.
    virtual bool is_completed() const noexcept = 0;
    // Blocks the host; throws what ended the group: PeerError, TimeoutError, BackendError. Either
    // way the memory is free then.
    virtual void wait() = 0;
    // What is put on `stream` from now on runs after the operation; the host goes on. Throws as
    // wait() when the group has failed already.
    virtual void wait(Stream stream) = 0;
};

// How many collectives a rank has launched, and a digest of what they were, in their order: no
// header travels with them, so a caller that checks compares this.
class LaunchOrder {
public:
    void add(const Call& call);
    std::uint64_t calls() const { return calls_; }
    std::uint64_t digest() const { return digest_; }
    // As it was when so many had been launched; not known of those that are too long ago.
    std::optional<std::uint64_t> digest_after(std::uint64_t calls) const;

private:
    static constexpr std::size_t remembered = 1024;

    std::uint64_t calls_ = 0;
    std::uint64_t digest_ = 0;
    std::array<std::uint64_t, remembered> last_{};  // of `calls` at calls % remembered
};

// A rank's part in a split of its group: which of the new groups, and its rank in that. Those in no
// group are a group, too.
struct SplitPart {
    int number = 0;
    int rank = 0;
};

// What a backend has given to one of a group that was split from its own.
struct SharedResources {
    virtual ~SharedResources() = default;
};

class DeviceBackend {
public:
    // Waits for what is in flight.
    virtual ~DeviceBackend() = default;

    virtual Device device() const = 0;
    // All of `calls` as one operation (coalesced tensors are many calls), timed out `timeout` from
    // now. Any thread; all ranks in the same order. Throws UsageError for what the library cannot
    // do (nothing has happened then), and the group's error once it has failed.
    virtual std::shared_ptr<DeviceOperation> launch(std::span<const Call> calls, Stream after,
                                                    std::chrono::milliseconds timeout) = 0;
    // A batch of point-to-point transfers, in the same order of operations as the collectives.
    virtual std::shared_ptr<DeviceOperation> launch(std::span<const Transfer> transfers,
                                                    Stream after,
                                                    std::chrono::milliseconds timeout) = 0;
    virtual LaunchOrder launch_order() const = 0;  // any thread
    // Throws the group's error once it has failed.
    virtual void require_healthy() const = 0;
    // Zeroed memory of this rank's device that collectives use best (ncclMemAlloc). This rank's
    // business alone; may outlive the backend. Throws SystemError.
    virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
    // Lets collectives use this memory of allocate() as it is, where that is asked for and can be.
    // Collective: all ranks, the same bytes; within the timeout. What to keep instead of it, and to
    // give back in one order on all ranks. Throws
    // the group's error once it has failed.
    virtual std::shared_ptr<void> register_memory(std::shared_ptr<void> memory, std::size_t bytes,
                                                  std::chrono::milliseconds timeout) = 0;
    // Calls `use` with the ncclComm_t while nothing else is in it, for ddp/nccl.hpp; it has to
    // return within the timeout. Throws the group's error once it has failed.
    virtual void with_native_handle(const std::function<void(void*)>& use,
                                    std::chrono::milliseconds timeout) = 0;
    // Whether groups that are split from this one share its resources; the same on all ranks.
    virtual bool shares_with_split() const = 0;
    // Then, collective over this one's ranks: what the rank's new group is made with, which fails
    // with this one. Waits for what is in flight. Throws the group's error once it has failed.
    virtual std::shared_ptr<SharedResources> split(const SplitPart& part,
                                                   std::chrono::milliseconds timeout) = 0;
};

}  // namespace ddp::backends
