#include "reducer/backward_marks.hpp"

#include <algorithm>

namespace ddp::reducer {

std::string list_names(std::span<const Parameter> parameters,
                       const std::vector<std::size_t>& which) {
    constexpr std::size_t shown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(which.size(), shown); ++i) {
        text += (i == 0 ? "" : ", ") + parameters[which[i]].name;
    }
    if (which.size() > shown) text += " and " + std::to_string(which.size() - shown) + " more";
    return text;
}

BackwardMarks::BackwardMarks(std::span<const Parameter> parameters, bool static_graph)
    : parameters_(parameters), static_graph_(static_graph), expected_(parameters.size(), 1) {
    start_backward();
}

void BackwardMarks::start_backward() {
    marks_.assign(parameters_.size(), 0);
    unused_.assign(parameters_.size(), false);
    arrivals_.clear();
    mistake_.clear();
    any_ = false;
}

bool BackwardMarks::mark_ready(std::size_t parameter) {
    any_ = true;
    if (unused_[parameter]) {
        add_mistake("the gradient of " + parameters_[parameter].name +
                    " was marked ready after it was said to be unused in this backward");
        return false;
    }
    arrivals_.push_back(parameter);
    const std::uint32_t marks = ++marks_[parameter];
    if (static_graph_ && !learned_) return false;
    if (marks == expected_[parameter]) return true;
    if (marks > expected_[parameter] && static_graph_) note_changed_graph(parameter);
    if (marks > expected_[parameter] && !static_graph_) {
        add_mistake("the gradient of " + parameters_[parameter].name +
                    " was marked ready twice in one backward; mark it once, when it is complete, "
                    "and call wait() after each backward (or set static_graph for a parameter that "
                    "is used twice)");
    }
    return false;
}

bool BackwardMarks::mark_unused(std::size_t parameter) {
    if (unused_[parameter] || marks_[parameter] > 0) return false;
    unused_[parameter] = true;
    return true;
}

void BackwardMarks::mark_all() {
    any_ = true;
    marks_ = expected_;
}

void BackwardMarks::add_mistake(std::string text) {
    if (mistake_.empty()) mistake_ = std::move(text);
}

void BackwardMarks::end_backward() {
    if (static_graph_ && !learned_) {
        learned_ = true;
        expected_ = marks_;
        return;
    }
    std::vector<std::size_t> missing;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        if (!unused_[p] && marks_[p] < expected_[p]) missing.push_back(p);
    }
    if (!missing.empty()) note_missing(missing);
}

std::vector<std::size_t> BackwardMarks::order() const {
    std::vector<std::size_t> last(parameters_.size(), 0);  // 1 + position of the last mark
    for (std::size_t i = 0; i < arrivals_.size(); ++i) last[arrivals_[i]] = i + 1;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
        if (last[arrivals_[i]] == i + 1) order.push_back(arrivals_[i]);
    }
    for (std::size_t p = parameters_.size(); p > 0; --p) {
        if (last[p - 1] == 0) order.push_back(p - 1);
    }
    return order;
}

void BackwardMarks::note_missing(const std::vector<std::size_t>& missing) {
    if (static_graph_) return note_changed_graph(missing.front());
    add_mistake("backward ended without a gradient for " + list_names(parameters_, missing) +
                "; every parameter must be marked ready in each backward, or, with "
                "find_unused_parameters, be named as unused when it starts");
}

void BackwardMarks::note_changed_graph(std::size_t parameter) {
    add_mistake("the graph has changed though static_graph is set: the gradient of " +
                parameters_[parameter].name + " was marked ready " +
                std::to_string(marks_[parameter]) + " times, in the first backward " +
                std::to_string(expected_[parameter]) + " times");
}

}  // namespace ddp::reducer
