// What has been said about gradients in one backward, and whether that was right: a pure state
// machine. A mistake is kept, not thrown, because all ranks are to hear of it at the end of the
// backward.
#pragma once

#include <ddp/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::reducer {

// "layer0, layer1", at most eight of them.
std::string list_names(std::span<const Parameter> parameters,
                       const std::vector<std::size_t>& which);

// Ends an error about a rank that is gone.
inline constexpr const char* advice_on_uneven_batches =
    "; if it ran out of batches before the others, put the loop into join()";

class BackwardMarks {
public:
    BackwardMarks(std::span<const Parameter> parameters, bool static_graph);

    void start_backward();
    // Whether this completes the gradient. With a static graph nothing is complete in the first
    // backward before end_backward.
    bool mark_ready(std::size_t parameter);
    // Whether this completes it: not when it was said before.
    bool mark_unused(std::size_t parameter);
    // As after a backward without mistakes.
    void mark_all();
    void add_mistake(std::string text);  // the first one is kept
    // What is missing now is a mistake, unless this was a static graph's first backward.
    void end_backward();

    bool any() const noexcept { return any_; }  // was marked ready
    const std::string& mistake() const noexcept { return mistake_; }
    std::uint32_t marks(std::size_t parameter) const { return marks_[parameter]; }
    // A static graph that this rank has not seen, as others marked it.
    void learn(std::span<const std::int32_t> marks) {
        expected_.assign(marks.begin(), marks.end());
    }
    // A static graph does not reach it.
    bool is_never_used(std::size_t parameter) const {
        return learned_ && expected_[parameter] == 0;
    }
    // The parameters in the order in which their gradients became complete; the unused ones last.
    std::vector<std::size_t> order() const;

private:
    void note_missing(const std::vector<std::size_t>& missing);
    void note_changed_graph(std::size_t parameter);

    std::span<const Parameter> parameters_;
    bool static_graph_;
    bool learned_ = false;                 // static graph: expected_ is known
    std::vector<std::uint32_t> expected_;  // marks a backward
    std::vector<std::uint32_t> marks_;
    std::vector<bool> unused_;
    std::vector<std::size_t> arrivals_;  // each mark, in order
    std::string mistake_;
    bool any_ = false;
};

}  // namespace ddp::reducer
