// Each rank describes its parameters as lines of text. The ranks first compare sizes and digests
// (the usual case: equal, one tiny all-gather); only when these differ is the text itself
// exchanged.
#include "reducer/parameter_check.hpp"

#include "base/log.hpp"
#include "process_group/group_access.hpp"
#include "process_group/memory_overlap.hpp"
#include "reducer/agreement.hpp"
#include "reducer/logical_sum.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp::reducer {
namespace {

constexpr std::string_view buffer_mark = "buffer ";
constexpr char own_mistake = '!';  // begins the text of a rank that must not go on

// Ranks have different GPUs.
std::string kind_of(const Device& device) {
    return device.type == DeviceType::cpu ? "cpu" : "cuda";
}

std::string describe(const Parameter& parameter) {
    return parameter.name + " " + to_string(parameter.value.shape) + " " +
           to_string(parameter.value.dtype) + " on " + kind_of(parameter.value.device);
}

// All of a model is in one place: in the CPU's memory, or on the GPU of this rank's group. Empty
// when it is.
std::string find_misplaced(std::span<const Parameter> parameters,
                           std::span<const NamedTensor> buffers, ProcessGroup& group,
                           const ReducerOptions& options) {
    std::vector<std::pair<std::string, Device>> places;
    for (const Parameter& parameter : parameters) {
        places.emplace_back("parameter " + parameter.name, parameter.value.device);
    }
    for (const NamedTensor& buffer : buffers) {
        places.emplace_back("buffer " + buffer.name, buffer.tensor.device);
    }
    const bool on_gpu = std::ranges::any_of(
        places, [](const auto& place) { return place.second.type == DeviceType::cuda; });
    if (!on_gpu && !process_group::GroupAccess(group).requires_gpus()) return {};
    for (const auto& [what, device] : places) {
        if (device.type == DeviceType::cuda && device == group.device()) continue;
        return what + " is on " + to_string(device) + ", rank " + std::to_string(group.rank()) +
               "'s group uses " + to_string(group.device()) + ": move the model first";
    }
    if (options.logical_ranks != static_cast<std::size_t>(group.size())) {
        return "logical_ranks is " + std::to_string(options.logical_ranks) + " for " +
               std::to_string(group.size()) + " ranks and a model on a GPU; it is for models in " +
               "CPU memory: NCCL adds in an order of its own";
    }
    return {};
}

// Two parameters, or a gradient and a value, in the same memory would be summed, split or given
// back as if each were alone. Empty when there are none.
std::string find_overlap(std::span<const Parameter> parameters) {
    process_group::MemoryRanges ranges;
    for (const Parameter& parameter : parameters) {
        ranges.add(parameter.value);
        ranges.add(parameter.grad.data != nullptr ? parameter.grad : TensorView{});
    }
    const auto both = ranges.find_overlap();
    if (!both) return {};
    const auto named = [&](std::size_t range) {
        return (range % 2 == 0 ? "the value of " : "the gradient of ") + parameters[range / 2].name;
    };
    return named(both->first) + " and " + named(both->second) +
           " are in the same memory; give each its own, and a tensor that is used twice (tied "
           "weights) once";
}

// Empty when there is none.
std::string find_own_mistake(std::span<const Parameter> parameters,
                             std::span<const NamedTensor> buffers, ProcessGroup& group,
                             const ReducerOptions& options) {
    const auto ranks = static_cast<std::size_t>(group.size());
    if (std::string why = refuse_logical_ranks(options.logical_ranks, ranks); !why.empty()) {
        return why;
    }
    if (std::string why = find_misplaced(parameters, buffers, group, options); !why.empty()) {
        return why;
    }
    if (options.find_unused_parameters && options.static_graph) {
        return "find_unused_parameters and static_graph exclude each other; the latter finds the "
               "unused ones in the first backward";
    }
    const bool cap_is_right = options.bucket_cap_mb > 0 || options.bucket_cap_mb == autotune;
    if (!cap_is_right || !(options.first_bucket_mb > 0)) {
        return "bucket_cap_mb and first_bucket_mb must be greater than 0 (or bucket_cap_mb "
               "ddp::autotune)";
    }
    if (options.reduce_in_float32 && options.gradient_as_bucket_view.value_or(false)) {
        return "reduce_in_float32 needs gradients that stay where they are, and "
               "gradient_as_bucket_view moves them into the buckets";
    }
    if (options.reduce_in_float32 && options.logical_ranks > ranks) {
        return "reduce_in_float32 and logical_ranks exclude each other; logical ranks add halves "
               "in float32 as it is";
    }
    std::unordered_set<std::string> names;
    for (const Parameter& parameter : parameters) {
        if (parameter.name.empty()) return "a parameter has no name";
        if (parameter.name.find('\n') != std::string::npos) {
            return "a parameter's name holds a line break";
        }
        if (!names.insert(parameter.name).second) {
            return "the parameter name " + parameter.name + " is used twice";
        }
        if (parameter.reducer.is_attached()) {
            return "the parameter " + parameter.name +
                   " already belongs to another reducer (or DistributedDataParallel); a net takes "
                   "one at a time: destroy the first";
        }
        const bool unknown_to_nccl =
            parameter.grad.dtype == DType::int16 && parameter.grad.device.type == DeviceType::cuda;
        if (!is_defined(ReduceOp::avg, parameter.grad.dtype) || unknown_to_nccl) {
            return "the gradient of " + describe(parameter) + " has no average";
        }
        if (parameter.grad.numel() != parameter.value.numel() ||
            parameter.grad.dtype != parameter.value.dtype ||
            parameter.grad.device != parameter.value.device) {
            return "the gradient of " + describe(parameter) + " is " +
                   to_string(parameter.grad.shape) + " " + to_string(parameter.grad.dtype) +
                   " on " + to_string(parameter.grad.device);
        }
        if (parameter.grad.data == nullptr && parameter.grad.numel() > 0 &&
            !options.gradient_as_bucket_view.value_or(false)) {
            return "the gradient of " + parameter.name +
                   " has no memory (data is null); give it some, or let the reducer by "
                   "gradient_as_bucket_view";
        }
    }
    return find_overlap(parameters);
}

std::string describe_all(std::span<const Parameter> parameters,
                         std::span<const NamedTensor> buffers, ProcessGroup& group,
                         const ReducerOptions& options) {
    std::ostringstream text;
    if (const std::string mistake = find_own_mistake(parameters, buffers, group, options);
        !mistake.empty()) {
        text << own_mistake << mistake << '\n';
        return text.str();
    }
    text << "options: bucket_cap_mb " << options.bucket_cap_mb << ", first_bucket_mb "
         << options.first_bucket_mb << ", find_unused_parameters " << options.find_unused_parameters
         << ", static_graph " << options.static_graph << ", broadcast_buffers "
         << options.broadcast_buffers << ", logical_ranks " << options.logical_ranks
         << ", reduce_in_float32 " << options.reduce_in_float32 << ", checksum_steps "
         << options.checksum_steps << ", comm_hook " << (options.comm_hook ? "yes" : "no") << '\n';
    for (const Parameter& parameter : parameters) text << describe(parameter) << '\n';
    for (const NamedTensor& buffer : buffers) {
        text << buffer_mark << buffer.name << ' ' << to_string(buffer.tensor.shape) << ' '
             << to_string(buffer.tensor.dtype) << '\n';
    }
    return text.str();
}

// FNV-1a, 64 bits.
std::uint64_t digest(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// All lines but the one of the options and those of buffers.
std::size_t count_parameters(const std::vector<std::string>& lines) {
    return static_cast<std::size_t>(std::ranges::count_if(lines, [&](const std::string& line) {
        return &line != &lines.front() && !line.starts_with(buffer_mark);
    }));
}

std::string difference(const std::string& first_text, const std::string& other_text, int other) {
    const std::vector<std::string> first = lines_of(first_text);
    const std::vector<std::string> theirs = lines_of(other_text);
    const std::string rank = "rank " + std::to_string(other);
    const std::size_t parameters = count_parameters(first);
    std::string counts;
    if (parameters != count_parameters(theirs)) {
        counts = " (rank 0 has " + std::to_string(parameters) + " parameters, " + rank + " has " +
                 std::to_string(count_parameters(theirs)) + ")";
    }
    for (std::size_t i = 0; i < std::max(first.size(), theirs.size()); ++i) {
        const std::string here = i < first.size() ? first[i] : "none";
        const std::string there = i < theirs.size() ? theirs[i] : "none";
        if (here == there) continue;
        const std::string what =
            i == 0 || i > parameters ? "" : "parameter " + std::to_string(i - 1) + ": ";
        return what + "rank 0 has " + here + ", " + rank + " has " + there + counts;
    }
    return "rank 0 and " + rank + " differ";
}

[[noreturn]] void throw_difference(const std::vector<std::string>& texts) {
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].starts_with(own_mistake)) {
            throw UsageError("reducer: on rank " + std::to_string(rank) + ", " +
                             lines_of(texts[rank]).front().substr(1));
        }
    }
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts[0]) continue;
        throw UsageError("reducer: the ranks hold different models; " +
                         difference(texts[0], texts[rank], static_cast<int>(rank)));
    }
    throw UsageError("reducer: the ranks' parameters differ");
}

void warn_of_idle_gpu(std::span<const Parameter> parameters, const ProcessGroup& group) {
    const bool idle = group.device().type == DeviceType::cuda && !parameters.empty() &&
                      parameters.front().value.device.type == DeviceType::cpu;
    if (!idle || group.rank() != 0) return;
    base::log_warn("reducer",
                   "the model is in CPU memory, although the group uses GPUs; move the "
                   "model first, or choose backend shm or gloo to train on the CPU");
}

}  // namespace

void check_parameters(std::span<const Parameter> parameters, std::span<const NamedTensor> buffers,
                      ProcessGroup& group, const ReducerOptions& options) {
    const std::string mine = describe_all(parameters, buffers, group, options);
    std::array<std::int64_t, 2> summary{static_cast<std::int64_t>(mine.size()),
                                        static_cast<std::int64_t>(digest(mine))};
    std::vector<std::int64_t> all(summary.size() * static_cast<std::size_t>(group.size()));
    group.all_gather(summary, all, Stream{}, CallSite{}).wait();
    bool same = true;  // as rank 0's: what every rank sees alike
    for (std::size_t i = 0; i < all.size(); i += summary.size()) {
        same = same && all[i] == all[0] && all[i + 1] == all[1];
    }
    if (same && !mine.starts_with(own_mistake)) {
        warn_of_idle_gpu(parameters, group);
        return;
    }
    throw_difference(gather_texts(mine, group));
}

}  // namespace ddp::reducer
