// Copies and sums of what modules hold. Invariant: a sum's order depends on the replicas alone, not
// on threads or places: backends::reduce has the one order of ddp, and so has a GPU's addition.
#include <ddp/error.hpp>
#include <ddp/replicas.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/reduction/reduce.hpp"
#include "tensor/allocation.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_memory.hpp"

namespace ddp::data_parallel {

namespace {

// "parameter 'fc.weight' is on cpu:1", for the first that is not where it should be.
std::optional<std::string> find_elsewhere(const ModuleState& state, const Device& wanted) {
    const auto say = [](const char* kind, const std::string& name, const TensorView& view) {
        return std::string(kind) + " '" + name + "' is on " + to_string(view.device);
    };
    for (const Parameter& parameter : state.parameters) {
        if (parameter.value.device != wanted) {
            return say("parameter", parameter.name, parameter.value);
        }
        if (parameter.grad.data != nullptr && parameter.grad.device != wanted) {
            return say("gradient of the parameter", parameter.name, parameter.grad);
        }
    }
    for (const NamedTensor& buffer : state.buffers) {
        if (buffer.tensor.device != wanted) return say("buffer", buffer.name, buffer.tensor);
    }
    return {};
}

std::string describe(const std::string& name, const TensorView& view) {
    return "'" + name + "' " + to_string(view.shape) + " " + to_string(view.dtype);
}

void require_same_count(const char* kind, std::size_t source, std::size_t replica) {
    if (source == replica) return;
    throw UsageError(std::string("DataParallel: the module has ") + std::to_string(source) + " " +
                     kind + ", its replica " + std::to_string(replica) +
                     "; replicate() has to return a module of the same structure");
}

void copy(const std::string& source_name, const TensorView& source, const std::string& replica_name,
          const TensorView& replica) {
    if (source_name != replica_name || source.shape != replica.shape ||
        source.dtype != replica.dtype) {
        throw UsageError("DataParallel: the module has " + describe(source_name, source) +
                         " where its replica has " + describe(replica_name, replica) +
                         "; replicate() has to return a module of the same structure");
    }
    if (source.data == replica.data && source.bytes() > 0) {
        throw UsageError("DataParallel: '" + source_name +
                         "' of the replica is the module's own memory; replicate() has to return "
                         "a module with memory of its own");
    }
    copy_elements(source, replica);
}

bool is_frozen(const Parameter& parameter) { return parameter.grad.data == nullptr; }

void require_gradient(const Parameter& parameter) {
    if (is_frozen(parameter)) {
        throw UsageError("DataParallel: parameter " + describe(parameter.name, parameter.value) +
                         " of a replica has no gradient, but the module's has one; replicate() has "
                         "to freeze what the module freezes, and nothing else");
    }
    if (parameter.grad.shape == parameter.value.shape &&
        parameter.grad.dtype == parameter.value.dtype) {
        return;
    }
    throw UsageError(
        "DataParallel: backward needs a gradient of the shape and dtype of parameter " +
        describe(parameter.name, parameter.value) + "; it is " + to_string(parameter.grad.shape) +
        " " + to_string(parameter.grad.dtype));
}

bool is_on_gpu(const TensorView& tensor) { return tensor.device.type == DeviceType::cuda; }

// Sums of gradients, in the first of them: in the host's memory by its processor, in a GPU's by
// that GPU, to which pieces of the others' are brought.
class Adder {
public:
    // The streams of the replicas have come to the gradients.
    explicit Adder(std::span<const ModuleState> replicas) {
        for (const ModuleState& replica : replicas.subspan(1)) {
            if (!replica.parameters.empty()) {
                device::finish(replica.parameters.front().value.device, {});
            }
        }
    }
    Adder(const Adder&) = delete;
    Adder& operator=(const Adder&) = delete;

    void add(std::span<const TensorView> gradients) {
        if (gradients.size() == 1) return;
        if (is_on_gpu(gradients.front())) return add_on_gpu(gradients);
        std::vector<const std::byte*> inputs;
        std::vector<Tensor> on_host;
        for (const TensorView& gradient : gradients) {
            const TensorView here =
                is_on_gpu(gradient)
                    ? on_host.emplace_back(clone(gradient, {.device = Device{}})).view()
                    : gradient;
            inputs.push_back(static_cast<const std::byte*>(here.data));
        }
        const TensorView& sum = gradients.front();
        auto* const output = static_cast<std::byte*>(sum.data);
        backends::reduce(inputs, {&output, 1}, sum.numel(), {.dtype = sum.dtype});
    }

    // All sums are there.
    void finish() const { device::finish(where_, {}); }

private:
    static constexpr std::size_t most_staged = std::size_t{2} << 20;  // of a replica

    // All on the default stream of the first one's GPU, one piece after the other.
    void add_on_gpu(std::span<const TensorView> gradients) {
        const TensorView& sum = gradients.front();
        where_ = sum.device;
        const std::size_t element = size_of(sum.dtype);
        const std::size_t piece = std::min(sum.numel(), most_staged / element);
        const std::size_t piece_bytes = (piece * element + 255) / 256 * 256;
        staging_.reserve(where_, std::max(piece_bytes * (gradients.size() - 1), std::size_t{1}));
        std::size_t count = 0;
        for (std::size_t first = 0; first < sum.numel(); first += count) {
            count = std::min(piece, sum.numel() - first);
            std::vector<const void*> inputs;
            std::byte* stage = staging_.data();
            for (const TensorView& gradient : gradients) {
                const auto* const part =
                    static_cast<const std::byte*>(gradient.data) + first * element;
                if (gradient.device == where_) {
                    inputs.push_back(part);
                    continue;
                }
                device::copy(where_, stage, part, count * element, {});
                inputs.push_back(stage);
                stage += piece_bytes;
            }
            auto* const output = static_cast<std::byte*>(sum.data) + first * element;
            device::device_api().add(
                inputs, {output, {static_cast<std::int64_t>(count)}, sum.dtype, where_}, {});
        }
    }

    Device where_;
    device::Buffer staging_;
};

}  // namespace

void require_source_on(const ModuleState& source, const Device& wanted) {
    const auto elsewhere = find_elsewhere(source, wanted);
    if (!elsewhere) return;
    const std::string there = to_string(wanted);
    throw UsageError("DataParallel: the module has to be on " + there +
                     " (device_ids[0]), but its " + *elsewhere + "; make the module on " + there +
                     ", or put the device that it is on first in device_ids");
}

void require_replica_on(const ModuleState& replica, const Device& wanted) {
    const auto elsewhere = find_elsewhere(replica, wanted);
    if (!elsewhere) return;
    throw UsageError("DataParallel: replicate(" + to_string(wanted) +
                     ") returned a module that is not there: its " + *elsewhere);
}

void copy_parameters(const ModuleState& source, const ModuleState& replica) {
    require_same_count("parameters", source.parameters.size(), replica.parameters.size());
    for (std::size_t i = 0; i < source.parameters.size(); ++i) {
        const Parameter& from = source.parameters[i];
        const Parameter& to = replica.parameters[i];
        copy(from.name, from.value, to.name, to.value);
    }
}

void copy_buffers(const ModuleState& source, const ModuleState& replica) {
    require_same_count("buffers", source.buffers.size(), replica.buffers.size());
    for (std::size_t i = 0; i < source.buffers.size(); ++i) {
        const NamedTensor& from = source.buffers[i];
        const NamedTensor& to = replica.buffers[i];
        copy(from.name, from.tensor, to.name, to.tensor);
    }
}

void zero_gradients(const ModuleState& replica) {
    for (const Parameter& parameter : replica.parameters) {
        if (is_frozen(parameter)) continue;
        require_gradient(parameter);
        device::set_zero(parameter.grad);
    }
}

void add_gradients(std::span<const ModuleState> replicas, std::size_t share, std::size_t shares) {
    const auto& source = replicas.front().parameters;
    Adder adder(replicas);
    for (std::size_t p = share; p < source.size(); p += shares) {
        if (is_frozen(source[p])) continue;
        std::vector<TensorView> gradients;
        for (const ModuleState& replica : replicas) {
            require_same_count("parameters", source.size(), replica.parameters.size());
            require_gradient(replica.parameters[p]);
            gradients.push_back(replica.parameters[p].grad);
        }
        adder.add(gradients);
    }
    adder.finish();
}

}  // namespace ddp::data_parallel
