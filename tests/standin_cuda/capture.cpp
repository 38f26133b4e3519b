#include "standin_cuda/capture.hpp"

#include <algorithm>
#include <utility>

namespace ddp::standin_cuda {
namespace {

using testing::HostStream;

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

}  // namespace

// From the end: the last node that nothing left comes after, and so on.
std::vector<std::size_t> Graph::order() const {
    std::vector<std::size_t> reversed;
    std::vector<bool> taken(nodes.size());
    const auto is_needed = [&](std::size_t node) {
        for (std::size_t other = 0; other < nodes.size(); ++other) {
            if (!taken[other] && nodes[other].after.contains(node)) return true;
        }
        return false;
    };
    while (reversed.size() < nodes.size()) {  // the first one that may be last, of two
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            if (taken[node] || is_needed(node)) continue;
            taken[node] = true;
            reversed.push_back(node);
            break;
        }
    }
    std::ranges::reverse(reversed);
    return reversed;
}

Capture::Capture(HostStream& origin, cudaStreamCaptureMode mode) : origin_(origin), mode_(mode) {
    streams[&origin_];
}

bool Capture::forbids_unsafe_calls(cudaStreamCaptureMode of_thread) const {
    if (mode_ == cudaStreamCaptureModeRelaxed || of_thread == cudaStreamCaptureModeRelaxed) {
        return false;
    }
    const bool is_own = thread_ == std::this_thread::get_id();
    return is_own ||
           (mode_ == cudaStreamCaptureModeGlobal && of_thread == cudaStreamCaptureModeGlobal);
}

bool Capture::may_be_ended_here() const {
    return mode_ == cudaStreamCaptureModeRelaxed || thread_ == std::this_thread::get_id();
}

bool Capture::has_all_joined() const {
    After reached = streams.at(&origin_);
    std::vector<std::size_t> left(reached.begin(), reached.end());
    while (!left.empty()) {
        const std::size_t node = left.back();
        left.pop_back();
        for (const std::size_t before : graph.nodes[node].after) {
            if (reached.insert(before).second) left.push_back(before);
        }
    }
    return reached.size() == graph.nodes.size();
}

Captures& Captures::get() {
    static Captures* const only = new Captures;
    return *only;
}

std::shared_ptr<Capture> Captures::find(HostStream& stream) const {
    for (const auto& one : active_) {
        if (one->streams.contains(&stream)) return one;
    }
    return nullptr;
}

cudaError_t Captures::begin(HostStream& stream, cudaStreamCaptureMode mode) {
    const std::lock_guard guard(mutex_);
    if (find(stream) != nullptr) return cudaErrorIllegalState;
    active_.insert(std::make_shared<Capture>(stream, mode));
    return cudaSuccess;
}

cudaError_t Captures::end(HostStream& stream, Graph& graph) {
    const std::lock_guard guard(mutex_);
    const auto capture = find(stream);
    if (capture == nullptr) return cudaErrorIllegalState;
    if (&capture->origin() != &stream) return cudaErrorStreamCaptureUnmatched;
    if (!capture->may_be_ended_here()) return cudaErrorStreamCaptureWrongThread;
    active_.erase(capture);
    if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    if (!capture->has_all_joined()) return cudaErrorStreamCaptureUnjoined;
    graph = std::move(capture->graph);
    return cudaSuccess;
}

cudaStreamCaptureStatus Captures::status(HostStream& stream) {
    const std::lock_guard guard(mutex_);
    const auto capture = find(stream);
    if (capture == nullptr) return cudaStreamCaptureStatusNone;
    return capture->is_valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
}

Captures::Put Captures::put(HostStream& stream, std::function<std::function<void()>()> prepare) {
    const std::lock_guard guard(mutex_);
    const auto capture = find(stream);
    if (capture == nullptr) return Put::not_captured;
    if (!capture->is_valid) return Put::invalid;
    After& last = capture->streams[&stream];
    capture->graph.nodes.push_back({std::move(prepare), last});
    last = {capture->graph.nodes.size() - 1};
    return Put::done;
}

cudaError_t Captures::record(HostStream& stream, std::shared_ptr<CapturedPoint>& point) {
    const std::lock_guard guard(mutex_);
    const auto capture = find(stream);
    if (capture == nullptr) return cudaSuccess;
    if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    point = std::make_shared<CapturedPoint>(CapturedPoint{capture, capture->streams[&stream]});
    return cudaSuccess;
}

cudaError_t Captures::wait(HostStream& stream, const std::shared_ptr<CapturedPoint>& point,
                           bool is_default) {
    const std::lock_guard guard(mutex_);
    const auto own = find(stream);
    if (point == nullptr && own == nullptr) return cudaSuccess;
    if (own != nullptr && !own->is_valid) return cudaErrorStreamCaptureInvalidated;
    const auto other = point == nullptr ? nullptr : point->capture.lock();
    if (point != nullptr && (other == nullptr || !active_.contains(other))) {
        return cudaErrorCapturedEvent;  // its capture has ended
    }
    if (own != nullptr && other != own) {
        own->is_valid = false;
        if (other == nullptr) return cudaErrorStreamCaptureIsolation;
        other->is_valid = false;
        return cudaErrorStreamCaptureMerge;
    }
    if (is_default) {
        other->is_valid = false;
        return cudaErrorStreamCaptureImplicit;
    }
    if (!other->is_valid) return cudaErrorStreamCaptureInvalidated;
    other->streams[&stream].insert(point->after.begin(), point->after.end());
    return cudaSuccess;
}

cudaError_t Captures::unsafe() {
    const std::lock_guard guard(mutex_);
    cudaError_t answer = cudaSuccess;
    for (const auto& one : active_) {
        if (!one->forbids_unsafe_calls(mode_of_thread)) continue;
        one->is_valid = false;
        answer = cudaErrorStreamCaptureUnsupported;
    }
    return answer;
}

cudaError_t Captures::forbidden_on(HostStream& stream) {
    const std::lock_guard guard(mutex_);
    const auto capture = find(stream);
    if (capture == nullptr) return cudaSuccess;
    capture->is_valid = false;
    return cudaErrorStreamCaptureUnsupported;
}

void Captures::exchange_mode(cudaStreamCaptureMode& mode) { std::swap(mode, mode_of_thread); }

}  // namespace ddp::standin_cuda
