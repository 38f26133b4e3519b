// One Reducer::join() under way: ranks with different numbers of batches, of which those that are
// through take part in the others' steps. Source: torch.distributed.algorithms.join.
#pragma once

#include "reducer/bucket_sender.hpp"

#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::reducer {

// Invariant: all ranks hold the same list of the ranks that train, of the last step in which any
// did. While it lives sums are divided as JoinOptions say, afterwards by `initial_divisor` again.
class JoinSession {
public:
    enum class Activity : std::uint8_t { none, trains, gives_buffers };  // the last one trains too

    JoinSession(ProcessGroup& group, BucketSender& sender, std::size_t initial_divisor,
                const JoinOptions& options)
        : group_(group), sender_(sender), initial_divisor_(initial_divisor), options_(options) {}
    ~JoinSession() { sender_.set_divisor(initial_divisor_); }
    JoinSession(const JoinSession&) = delete;
    JoinSession& operator=(const JoinSession&) = delete;

    // Collective, blocks: a step begins, in which this rank does so much. False: no rank trains any
    // more. Throws UsageError on every rank for the first that is through, if that is wanted.
    bool note_step(Activity mine);

    // Of the last step that was noted.
    Root first_that_trains() const;
    bool are_buffers_given() const;
    // Collective, blocks: these tensors get the values of the last rank that trained, the largest
    // if there were several: its optimiser went on to the end. Nothing where no rank had any input.
    void copy_from_last_that_trained(std::span<const TensorView> model) const;

private:
    ProcessGroup& group_;
    BucketSender& sender_;
    std::size_t initial_divisor_;
    JoinOptions options_;
    std::vector<Activity> activities_;  // by rank
};

}  // namespace ddp::reducer
