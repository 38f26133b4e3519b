// Parameter: one trainable tensor and its gradient, as the reducer sees them.
#pragma once

#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ddp {

// Borrowed memory: the net owns it (or, after wrapping, the reducer owns what `grad` points to), so
// layers and optimisers must read `value.data` and `grad.data` from here each time, not keep them.
// `value` and `grad` have the same shape, dtype and device. Names are unique within a net.
struct Parameter {
    std::string name;
    TensorView value;
    TensorView grad;
    const void* reducer = nullptr;  // the one that averages `grad`; set and cleared by it
};

// Called during backward, once a parameter, when its gradient is complete: with the index of the
// parameter in parameters() and the stream whose work so far has produced it.
using GradientReady = std::function<void(std::size_t parameter, Stream stream)>;

// A net with state beside parameters: the same tensors at each call.
template <class Net>
concept HasBuffers = requires(Net net) {
    { net.buffers() } -> std::convertible_to<std::vector<NamedTensor>>;
};

}  // namespace ddp
