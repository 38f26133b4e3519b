// Copies and sums of what modules hold. Invariant: a sum's order depends on the replicas alone, not
// on threads: backends::reduce has the one order of ddp.
#include <ddp/error.hpp>
#include <ddp/replicas.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstddef>
#include <optional>
#include <string>

#include "backends/reduction/reduce.hpp"
#include "tensor/allocation.hpp"

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

// The sum of all, in the first. Memory of GPUs is added on the host.
void add(std::span<const TensorView> gradients) {
    if (gradients.size() == 1) return;
    std::vector<Tensor> on_host;
    std::vector<const std::byte*> inputs;
    for (const TensorView& gradient : gradients) {
        const void* data = gradient.data;
        if (gradient.device.type != DeviceType::cpu) {
            data = on_host.emplace_back(clone(gradient, {.device = Device{}})).data();
        }
        inputs.push_back(static_cast<const std::byte*>(data));
    }
    const TensorView& sum = gradients.front();
    auto* output = const_cast<std::byte*>(inputs.front());
    backends::reduce(inputs, {&output, 1}, sum.numel(), {.dtype = sum.dtype});
    if (!on_host.empty()) copy_elements(on_host.front(), sum);
}

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
    for (std::size_t p = share; p < source.size(); p += shares) {
        if (is_frozen(source[p])) continue;
        std::vector<TensorView> gradients;
        for (const ModuleState& replica : replicas) {
            require_same_count("parameters", source.size(), replica.parameters.size());
            require_gradient(replica.parameters[p]);
            gradients.push_back(replica.parameters[p].grad);
        }
        add(gradients);
    }
}

}  // namespace ddp::data_parallel
