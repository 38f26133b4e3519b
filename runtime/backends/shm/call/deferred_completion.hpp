// The end of a call that this rank returned from before its peers had arrived: a rank that only
// sends, in a call of one phase, has nothing to wait for. Its phase is waited for, and its
// descriptor compared, at the beginning of the rank's next call. Invariant: at most one is open.
#pragma once

#include "backends/backend.hpp"
#include "base/deadline.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace ddp::shm {

struct CollectiveContext;
struct GroupState;

class DeferredCompletion {
public:
    struct Pending {
        backends::Call call;
        std::uint64_t sequence;
        std::uint32_t phase;
    };
    void defer(const Pending& pending) { pending_.emplace(pending); }
    bool is_pending() const { return pending_.has_value(); }
    Pending extract() { return *std::exchange(pending_, std::nullopt); }

private:
    std::optional<Pending> pending_;
};

// Arrives at the phase of the call that `context` has published, and leaves the rest of it to
// complete_deferred.
void defer_completion(CollectiveContext& context);
// Before anything else of a call. Throws what the deferred call would have thrown.
void complete_deferred(GroupState& group, const base::Deadline& deadline);

}  // namespace ddp::shm
