#include "process_group/device_dispatch.hpp"

#include "backends/selection/make_backend.hpp"
#include "tensor/device/device.hpp"

#include <ddp/error.hpp>

#include <cerrno>

namespace ddp::process_group {
namespace {

// Once a stream waits for it, whoever frees the memory does so after it in that stream.
class DeviceWork : public Operation {
public:
    explicit DeviceWork(std::shared_ptr<backends::DeviceOperation> operation)
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
    std::shared_ptr<backends::DeviceOperation> operation_;
    bool a_stream_waits_ = false;
};

}  // namespace

DeviceDispatch::DeviceDispatch(const GroupMember& member, Store* store,
                               const DispatchOptions& options, std::shared_ptr<HeldCalls> held,
                               const base::Deadline& deadline,
                               std::shared_ptr<backends::SharedResources> shared)
    : member_(member), options_(options), held_(std::move(held)) {
    backends::Halves halves =
        backends::make_backends({.me = member.env(),
                                 .store = store,
                                 .wanted = options.wanted,
                                 .agent_abort = &member.abort_word(),
                                 .job_ranks = member.job_ranks(),
                                 .cpu_only = options.cpu_only,
                                 .shared = std::move(shared),
                                 .make_recorder = [&] { return member.make_gpu_recorder(); }},
                                deadline);
    cpu_ = std::move(halves.cpu);
    gpu_ = std::move(halves.device);
    no_gpu_reason_ = std::move(halves.no_device);
    own_device_ = gpu_ ? gpu_->device() : device::cpu_of_rank(member.env().local_rank);
    if (gpu_) device::set_gpu_of_rank(own_device_.index);
    collectives_ = std::make_unique<CollectiveQueue>(
        cpu_, member.page(),
        CollectiveQueue::RecordedGroup{
            .id = member.group_id(), .ranks = member.size(), .timeline = member.timeline()});
    transfers_ = std::make_shared<TransferQueue>(cpu_, member.page(), member.group_id(),
                                                 member.job_ranks(), member.timeline());
    rendezvous(deadline);
}

// Not through the queue, so that the program's first collective is operation 1.
void DeviceDispatch::rendezvous(const base::Deadline& deadline) {
    try {
        cpu_->run({.kind = backends::Collective::barrier}, 0, deadline);
    } catch (...) {
        cpu_->fail();
        throw;
    }
    member_.set_phase(contract::Phase::running);
}

void DeviceDispatch::require_own_device(const TensorView& tensor, const char* operation) const {
    if (gpu_ && tensor.device == gpu_->device()) return;
    const std::string what =
        std::string(operation) + ": the tensor is on " + to_string(tensor.device);
    if (!gpu_) {
        throw UsageError(what + ", but this group's backend moves CPU memory only" +
                         (no_gpu_reason_.empty() ? "" : " (" + no_gpu_reason_ + ")"));
    }
    throw UsageError(what + ", rank " + std::to_string(member_.rank()) + "'s group uses " +
                     to_string(gpu_->device()));
}

void DeviceDispatch::throw_two_devices(const TensorView& a, const TensorView& b,
                                       const char* operation) {
    throw UsageError(std::string(operation) + ": one tensor is on " + to_string(a.device) +
                     ", another on " + to_string(b.device) + "; one call takes one place");
}

Work DeviceDispatch::start_on_gpu(std::span<const backends::Call> calls, Stream stream) {
    release_held();
    return Work(std::make_unique<DeviceWork>(gpu_->launch(calls, stream, options_.timeout)));
}

Work DeviceDispatch::start_on_gpu(std::span<const backends::Transfer> batch, Stream stream) {
    release_held();
    return Work(std::make_unique<DeviceWork>(gpu_->launch(batch, stream, options_.timeout)));
}

// Each rank allocates for itself, then all ask whether every one could: by an all_reduce of the CPU
// half that takes the place of its allocate.
std::shared_ptr<void> DeviceDispatch::allocate_on_gpu(std::size_t bytes, std::uint64_t sequence,
                                                      const base::Deadline& deadline,
                                                      const CallSite& site) {
    std::shared_ptr<void> memory;
    std::exception_ptr refused;
    try {
        memory = gpu_->allocate(bytes);
    } catch (const SystemError&) {
        refused = std::current_exception();
    }
    std::int64_t lacking = refused ? member_.rank() : -1;
    cpu_->run({.kind = backends::Collective::all_reduce,
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
    return gpu_->register_memory(std::move(memory), bytes, options_.timeout);
}

std::shared_ptr<backends::SharedResources> DeviceDispatch::split(const backends::SplitPart& part,
                                                                 const CallSite& site) {
    if (!gpu_ || !gpu_->shares_with_split()) return nullptr;
    auto shared = gpu_->split(part, options_.timeout);
    // The new group's ranks would wait for one that could not.
    run({.kind = backends::Collective::barrier, .site = site});
    return shared;
}

}  // namespace ddp::process_group
