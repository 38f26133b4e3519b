#include "process_group/group_access.hpp"

#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>

namespace ddp::process_group {

int GroupAccess::job_rank(int rank) const { return impl_.member().job_rank(rank); }

bool GroupAccess::requires_gpus() const { return impl_.dispatch().options().requires_gpus; }

std::optional<backends::LaunchOrder> GroupAccess::gpu_launch_order() const {
    const backends::DeviceBackend* const gpu = impl_.dispatch().gpu();
    return gpu != nullptr ? std::optional(gpu->launch_order()) : std::nullopt;
}

void GroupAccess::with_native_handle(const std::function<void(void*)>& use) const {
    backends::DeviceBackend* const gpu = impl_.dispatch().gpu();
    if (gpu == nullptr) {
        throw UsageError("with_native_handle: this group has no NCCL; it moves CPU memory only");
    }
    gpu->with_native_handle(use, impl_.dispatch().options().timeout);
}

contract::ControlPage& GroupAccess::control_page() const { return impl_.member().page(); }
contract::Timeline GroupAccess::timeline() const { return impl_.member().timeline(); }

Work GroupAccess::all_reduce(const TensorView& tensor, ReduceOp op,
                             std::chrono::nanoseconds& took) {
    return group_.start_all_reduce(tensor, op, {}, {}, &took);
}

Work GroupAccess::start_failing(const std::exception_ptr& error) {
    return impl_.dispatch().start(
        {}, [error](backends::Backend&, std::uint64_t, const base::Deadline&) {
            std::rethrow_exception(error);
        });
}

std::exception_ptr GroupAccess::find_trouble(const std::string& during) noexcept {
    return impl_.dispatch().cpu()->find_trouble(during);
}

void GroupAccess::pass_on_trouble() noexcept { impl_.dispatch().cpu()->pass_on_trouble(); }

std::uint32_t GroupAccess::next_reducer_number() { return impl_.reducers().next_number(); }

const std::shared_ptr<HeldCalls>& GroupAccess::held_calls() const {
    return impl_.reducers().held();
}

const std::shared_ptr<std::atomic<int>>& GroupAccess::reducers_with_logical_ranks() const {
    return impl_.reducers().with_logical_ranks();
}

GroupObserver::GroupObserver(ProcessGroup& group) noexcept
    : backend_(GroupAccess(group).impl_.dispatch().cpu()) {}

void GroupObserver::fail() noexcept {
    if (const auto backend = backend_.lock()) backend->fail();
}

}  // namespace ddp::process_group

namespace ddp {

void with_native_handle(ProcessGroup& group, const std::function<void(ncclComm*)>& use) {
    process_group::GroupAccess(group).with_native_handle(
        [&](void* handle) { use(static_cast<ncclComm*>(handle)); });
}

}  // namespace ddp
