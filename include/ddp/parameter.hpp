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

// Of a Parameter: which Reducer averages it, and who hears that it ends. Not for users. A copy of
// a parameter has none.
class ReducerLink {
public:
    using Ended = void (*)(void* owner) noexcept;

    ReducerLink() = default;
    ~ReducerLink() {
        if (owner_ != nullptr) ended_(owner_);
    }
    ReducerLink(const ReducerLink& /*other*/) noexcept {}
    ReducerLink& operator=(const ReducerLink& /*other*/) noexcept { return *this; }

    void attach(void* owner, Ended ended) noexcept {
        owner_ = owner;
        ended_ = ended;
    }
    void detach() noexcept { owner_ = nullptr; }
    bool is_attached() const noexcept { return owner_ != nullptr; }

private:
    void* owner_ = nullptr;
    Ended ended_ = nullptr;
};

// Borrowed memory: the net owns it (or, after wrapping, the reducer owns what `grad` points to), so
// layers and optimisers must read `value.data` and `grad.data` from here each time, not keep them.
// `value` and `grad` have the same shape, dtype and device. Names are unique within a net. A
// gradient whose data is null has no memory until a reducer with gradient_as_bucket_view gives it
// some, of zeros, and none again after it: the model's gradients are there once. (DataParallel
// takes null for a parameter that is frozen.)
struct Parameter {
    std::string name;
    TensorView value;
    TensorView grad;
    ReducerLink reducer = {};  // to the one that averages `grad`; set and cleared by it
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
