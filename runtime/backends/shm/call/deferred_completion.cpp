#include "backends/shm/call/deferred_completion.hpp"

#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/call/op_descriptor.hpp"

namespace ddp::shm {

void defer_completion(CollectiveContext& context) {
    const std::uint32_t phase = context.group.barrier.arrive();
    context.group.deferred.defer({context.call, context.sequence, phase});
}

void complete_deferred(GroupState& group, const base::Deadline& deadline) {
    if (!group.deferred.is_pending()) return;
    const DeferredCompletion::Pending open = group.deferred.extract();
    CollectiveContext context{group, open.call, open.sequence, deadline, size_of(open.call.dtype)};
    context.first_phase = open.phase;
    try {
        group.barrier.wait(open.phase, deadline, context);
        compare_calls(context);
    } catch (...) {
        backends::rethrow_at(open.call.site_in_program());
    }
}

}  // namespace ddp::shm
