// A tensor's device chooses the half of the group: the queue for CPU memory, NCCL for GPUs.
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>

#include <cerrno>

namespace ddp {
namespace {

// Once a stream waits for it, whoever frees the memory does so after it in that stream.
class DeviceWork : public process_group::Operation {
public:
    explicit DeviceWork(std::unique_ptr<backends::DeviceOperation> operation)
        : operation_(std::move(operation)) {}

    void wait() override { operation_->wait(); }
    void wait_in(Stream stream) override {
        operation_->wait(stream);
        a_stream_waits_ = true;
    }
    void wait_quietly() noexcept override {
        if (a_stream_waits_) return;
        try {
            operation_->wait();
        } catch (...) {  // the group keeps it
        }
    }
    bool is_completed() const noexcept override { return operation_->is_completed(); }

private:
    std::unique_ptr<backends::DeviceOperation> operation_;
    bool a_stream_waits_ = false;
};

}  // namespace

void ProcessGroup::Impl::require_own_device(const TensorView& tensor, const char* operation) const {
    const std::string what =
        std::string(operation) + ": the tensor is on " + to_string(tensor.device);
    if (!device) {
        throw UsageError(what + ", but this group's backend moves CPU memory only" +
                         (no_device.empty() ? "" : " (" + no_device + ")"));
    }
    if (tensor.device == device->device()) return;
    throw UsageError(what + ", rank " + std::to_string(me.rank) + "'s group uses " +
                     to_string(device->device()));
}

void ProcessGroup::Impl::throw_two_places(const TensorView& a, const TensorView& b,
                                          const char* operation) {
    throw UsageError(std::string(operation) + ": one tensor is on " + to_string(a.device) +
                     ", another on " + to_string(b.device) + "; one call takes one place");
}

Work ProcessGroup::Impl::start_on_device(std::span<const backends::Call> calls, Stream stream) {
    release_held();
    return Work(std::make_unique<DeviceWork>(device->launch(calls, stream, timeout)));
}

Work ProcessGroup::Impl::start_on_device(std::span<const backends::Transfer> batch, Stream stream) {
    release_held();
    return Work(std::make_unique<DeviceWork>(device->launch(batch, stream, timeout)));
}

// Each rank allocates for itself, then all ask whether every one could: by an all_reduce of the CPU
// half that takes the place of its allocate.
std::shared_ptr<void> ProcessGroup::Impl::allocate_on_device(std::size_t bytes,
                                                             std::uint64_t sequence,
                                                             const base::Deadline& deadline,
                                                             const CallSite& site) {
    std::shared_ptr<void> memory;
    std::exception_ptr refused;
    try {
        memory = device->allocate(bytes);
    } catch (const SystemError&) {
        refused = std::current_exception();
    }
    std::int64_t lacking = refused ? me.rank : -1;
    backend->run({.kind = backends::Collective::all_reduce,
                  .dtype = DType::int64,
                  .op = ReduceOp::max,
                  .elements = 1,
                  .input = &lacking,
                  .output = &lacking,
                  .site = site},
                 sequence, deadline);
    if (refused) std::rethrow_exception(refused);
    if (lacking >= 0) {
        throw SystemError("nccl: allocate " + std::to_string(bytes) + " bytes on the GPU of rank " +
                              std::to_string(lacking),
                          ENOMEM);
    }
    return memory;
}

ncclComm* native_handle(ProcessGroup& group) {
    const auto& device = group.impl().device;
    if (!device)
        throw UsageError("native_handle: this group has no NCCL; it moves CPU memory only");
    device->require_healthy();
    return static_cast<ncclComm*>(device->native_handle());
}

}  // namespace ddp
