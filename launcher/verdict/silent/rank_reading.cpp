#include "launcher/verdict/silent/rank_reading.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace ddp::launcher {
namespace {

constexpr std::string_view own_calls = "(distributed_c10d.py:";

// In whatever thread: the one that calls may be another's that the program's waits for.
bool is_within_collective(std::string_view frame) {
    constexpr std::array<std::string_view, 9> beginnings{
        "c10d::ProcessGroupGloo::AsyncWork::execute",
        "c10d::ProcessGroupMPI::",
        "c10d::ProcessGroupNCCL::WorkNCCL::",
        "c10d::Work::wait",
        "gloo::barrier",
        "gloo::allreduce",
        "gloo::transport::",
        "MPI_",
        "PMPI_"};
    // Of threads that wait for work all the time.
    if (frame.starts_with("gloo::transport::tcp::Loop::") ||
        frame.starts_with("c10d::ProcessGroupMPI::runLoop")) {
        return false;
    }
    return std::ranges::any_of(
        beginnings, [&](std::string_view beginning) { return frame.starts_with(beginning); });
}

bool is_within_store(std::string_view frame) {
    return frame.starts_with("c10d::TCPStore::") || frame.starts_with("c10d::PrefixStore::");
}

// Of CUDA's driver and runtime.
bool is_within_wait_for_gpu(std::string_view frame) {
    constexpr std::array<std::string_view, 8> beginnings{
        "cuStreamSynchronize",   "cuEventSynchronize",   "cuCtxSynchronize",      "cuMemcpyDtoH",
        "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy"};
    return std::ranges::any_of(
        beginnings, [&](std::string_view beginning) { return frame.starts_with(beginning); });
}

// For whose threads the first one waits.
bool is_of_backward(std::string_view frame) {
    return frame.starts_with("torch::autograd::Engine::thread_main");
}

std::string_view function_in(std::string_view frame) { return frame.substr(0, frame.find(" (")); }

// "train.py:9" of "step (train.py:9)"
std::string place_in(std::string_view frame) {
    const auto begin = frame.rfind('(');
    if (begin == frame.npos || !frame.ends_with(')')) return "";
    return std::string(frame.substr(begin + 1, frame.size() - begin - 2));
}

const ThreadStack* first_python(const RankStacks& stacks) {
    const auto main = std::ranges::find(stacks.python, stacks.pid, &ThreadStack::tid);
    return main != stacks.python.end() ? &*main : nullptr;
}

// " within Tensor.backward", what the program's own code has called.
std::string within(const ThreadStack* python) {
    if (python == nullptr) return "";
    const auto own = std::ranges::find(python->frames, python->own_frame);
    if (own == python->frames.end() || own == python->frames.begin()) return "";
    return " within " + std::string(function_in(*std::prev(own)));
}

std::optional<StackCall> call_of(const RankStacks& stacks, const ThreadStack* python) {
    const std::string place = python != nullptr ? place_in(python->own_frame) : "";
    if (python != nullptr) {
        // The outermost of those is what the program has called.
        const auto call = std::find_if(
            python->frames.rbegin(), python->frames.rend(),
            [](const std::string& frame) { return frame.find(own_calls) != frame.npos; });
        if (call != python->frames.rend()) {
            return StackCall{
                .name = std::string(function_in(*call)), .place = place, .tid = python->tid};
        }
    }
    for (const ThreadStack& thread : stacks.native) {
        const auto call = std::ranges::find_if(thread.frames, is_within_collective);
        if (call == thread.frames.end()) continue;
        const std::string_view function = function_in(*call);
        const bool is_mpi = function.starts_with("MPI_") || function.starts_with("PMPI_");
        return StackCall{.name = is_mpi ? std::string(function) : "a collective" + within(python),
                         .place = place,
                         .tid = thread.tid};
    }
    for (const ThreadStack& thread : stacks.native) {
        // Others wait for the store, and for the GPU, all the time.
        const bool is_first = thread.tid == stacks.pid;
        if (is_first && std::ranges::any_of(thread.frames, is_within_store)) {
            return StackCall{.name = "a wait for the store", .place = place, .tid = thread.tid};
        }
        if (!is_first && std::ranges::none_of(thread.frames, is_of_backward)) continue;
        if (std::ranges::any_of(thread.frames, is_within_wait_for_gpu)) {
            return StackCall{
                .name = "a wait for the GPU", .place = place, .tid = thread.tid, .on_gpu = true};
        }
    }
    return std::nullopt;
}

}  // namespace

std::string StackCall::words() const { return place.empty() ? name : name + " (" + place + ")"; }

RankReading reading_of(const RankStacks& stacks) {
    const ThreadStack* const python = first_python(stacks);
    return {.rank = stacks.rank,
            .pid = stacks.pid,
            .is_whole = stacks.has_all_native,
            .in_python = !stacks.python.empty(),
            .problem = stacks.problem,
            .call = call_of(stacks, python),
            .own_frame = python != nullptr ? python->own_frame : ""};
}

RankReading reading_now(const RankStacks& stacks) {
    RankReading reading = reading_of(stacks);
    reading.at = std::chrono::steady_clock::now();
    reading.process = look_at_process(stacks.pid);
    if (reading.call) reading.runs = runs_of(stacks.pid, reading.call->tid);
    return reading;
}

}  // namespace ddp::launcher
