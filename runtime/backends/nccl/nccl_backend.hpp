// NcclBackend: the GPU half of a group: collectives of the memory of this rank's device, over one
// communicator and on one stream of high priority. Launches on the caller's thread: an event that
// another thread would record later is one that a stream does not yet wait for and reads too soon.
//
//   running -> failed -> aborted     launches throw from `failed` on, works once aborted
//
// A launch on a stream that is captured goes into a graph, on the same stream of the group: neither
// the watchdog nor a deadline sees what the graph's launches do later.
// Invariant: it ends once, by the first of: a failure that the watchdog finds, a launch that NCCL
// refuses. Then its family ends (GroupFamily): the error is set, the communicator cancelled, what
// was in flight is aborted and logged, the other ranks are told through the CPU half, NCCL is
// revoked and aborted on the communicator's thread; if that takes longer than the limit, the
// process ends itself with code 83 (its launcher starts it anew).
#pragma once

#include "backends/device_backend.hpp"
#include "backends/nccl/block_pool.hpp"
#include "backends/nccl/group_family.hpp"
#include "backends/nccl/nccl_communicator.hpp"
#include "backends/nccl/nccl_launcher.hpp"
#include "backends/nccl/nccl_operation.hpp"
#include "backends/nccl/nccl_watchdog.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ddp::nccl {

// What a group with resources of its parent's begins with.
struct SharedResources : backends::SharedResources {
    std::shared_ptr<GroupFamily> family;
    std::shared_ptr<Communicator> communicator;
};

class NcclBackend : public backends::DeviceBackend, private GroupFamily::Member {
public:
    struct Setup {
        const NcclLibrary& library;
        device::DeviceApi& api;
        int device = 0;
        Communicator::GroupRank own;
        std::string name;                        // "rank 1", by its number in the job
        std::shared_ptr<backends::Backend> cpu;  // the group's other half, or null
        std::shared_ptr<contract::LaunchRecorder> recorder = nullptr;  // or null
        Averaging averaging = Averaging::by_nccl;  // the same on all ranks, and this:
        bool registers_memory = false;             // that allocate() makes
        bool shares = false;                       // with groups that are split from it
    };
    // The communicator is ready, and of the family. Throws BackendError{"cuda"}, SystemError.
    NcclBackend(Setup setup, std::shared_ptr<Communicator> communicator,
                std::shared_ptr<GroupFamily> family);
    ~NcclBackend() override;

    Device device() const override { return {DeviceType::cuda, setup_.device}; }
    std::shared_ptr<backends::DeviceOperation> launch(std::span<const backends::Call> calls,
                                                      Stream after,
                                                      std::chrono::milliseconds timeout) override;
    std::shared_ptr<backends::DeviceOperation> launch(std::span<const backends::Transfer> transfers,
                                                      Stream after,
                                                      std::chrono::milliseconds timeout) override;
    backends::LaunchOrder launch_order() const override;
    void require_healthy() const override;
    std::shared_ptr<void> allocate(std::size_t bytes) override;
    std::shared_ptr<void> register_memory(std::shared_ptr<void> memory, std::size_t bytes,
                                          std::chrono::milliseconds timeout) override;
    void with_native_handle(const std::function<void(void*)>& use,
                            std::chrono::milliseconds timeout) override;
    bool shares_with_split() const override { return setup_.shares; }
    std::shared_ptr<backends::SharedResources> split(const backends::SplitPart& part,
                                                     std::chrono::milliseconds timeout) override;

private:
    struct Streams;  // and the event of those that are waited for
    struct BadCall;
    using Place = InFlightOperation::Place;
    template <class Item>
    std::shared_ptr<backends::DeviceOperation> launch_all(std::span<const Item> items, Stream after,
                                                          std::chrono::milliseconds timeout);
    void call_nccl(const char* what, std::chrono::milliseconds timeout,
                   const std::function<void()>& call);
    std::shared_ptr<InFlightOperation> start_operation(OperationInfo info,
                                                       const base::Deadline& deadline, Place place);
    Place place_of(Stream after);
    template <class Ask>
    auto of_callers_stream(const Ask& ask);
    void come_after(Stream after);
    void note_order(std::span<const backends::Call> calls);
    void note_order(std::span<const backends::Transfer>) {}
    void record(std::span<const backends::Call> calls, InFlightOperation& operation);
    void record(std::span<const backends::Transfer> transfers, InFlightOperation& operation);
    std::exception_ptr find_trouble(const std::string& during) noexcept;
    std::exception_ptr find_async_error(const std::string& during);
    void end_after_launch(const std::string& what, std::exception_ptr error) noexcept;
    std::vector<std::string> abort_operations() noexcept override;
    void tell_others(Watchdog::Finder finder) noexcept override;
    void finish_own_stream(const base::Deadline& deadline) noexcept override;

    Setup setup_;
    std::shared_ptr<Communicator> communicator_;  // memory that it knows of refers to it
    std::unique_ptr<Streams> streams_;
    std::shared_ptr<EventPool> events_;
    PoolAllocator<InFlightOperation> operations_{std::make_shared<BlockPool>()};
    std::shared_ptr<GroupFamily> family_;
    std::shared_ptr<GroupAbort> group_abort_;  // the family's
    NcclLauncher launcher_;
    // Under the communicator's mutex:
    std::uint64_t sequence_ = 0;  // of the last launch
    bool is_captured_ = false;    // it went into a graph
    mutable std::mutex order_mutex_;
    backends::LaunchOrder order_;
    Watchdog watchdog_;
};

}  // namespace ddp::nccl
