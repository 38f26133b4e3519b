// Module: what DataParallel asks of a net. Any class with these members will do; nothing to derive
// from. Gradients are written by hand: backward() uses what the last forward() left in the module.
//
//   std::span<ddp::Parameter> parameters();     // value and gradient of each, on one device; a
//                                               // frozen one's gradient is empty: {}
//   Model replicate(ddp::Device device);        // the same structure, with memory of its own there
//   Output forward(const Input&...);            // tensors, tuples, vectors of them, or numbers
// and, where there is something to do for them:
//   std::vector<ddp::NamedTensor> buffers();    // state beside parameters: running averages
//   ... backward(const ddp::Tensor& gradient);  // of the output; ADDS to the parameters' gradients
//   std::string to_string(const Model&);        // or operator<<: "Model((fc): Linear(...))"
//
// replicate() need not copy values: parameters and buffers are copied into the replica before it
// runs. It returns a new object (`return Model{...}`: a module need be neither movable nor
// copyable), in which parameters() and buffers() give the same names and shapes in the same order.
// forward() and backward() run on several replicas at once, each on a thread of its own: they share
// nothing that one of them changes.
#pragma once

#include <ddp/parameter.hpp>

#include <concepts>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace ddp {

template <class Net>
concept Module = requires(Net& net, const Device& device) {
    { net.parameters() } -> std::convertible_to<std::span<Parameter>>;
    { net.replicate(device) } -> std::same_as<Net>;
};

// What forward() returns is what is gathered: it has to return something.
template <class Net, class... Inputs>
concept ForwardsFrom = requires(Net& net, const Inputs&... inputs) {
    net.forward(inputs...);
    requires !std::is_void_v<decltype(net.forward(inputs...))>;
};
// One gradient for each tensor of the output; returns nothing, or the gradient of the input.
template <class Net, class... Gradients>
concept BackwardsFrom = requires(Net& net, const Gradients&... gradients) {
    net.backward(gradients...);
};

// One that says what it is, for DataParallel's own to_string.
template <class Net>
concept PrintableModule = Module<Net> &&(
    requires(Net& net, std::ostream& out) { out << net; } ||
    requires(Net & net) { std::string(to_string(net)); });

namespace data_parallel {

template <class Stream, PrintableModule Net>
void print(Stream& out, Net& net) {
    if constexpr (requires { out << net; }) {
        out << net;
    } else {
        out << to_string(net);
    }
}

// All that a module holds, as it is copied from one to another.
struct ModuleState {
    std::span<Parameter> parameters;
    std::vector<NamedTensor> buffers;
};

template <Module Net>
ModuleState state_of(Net& net) {
    ModuleState state{net.parameters(), {}};
    if constexpr (HasBuffers<Net>) state.buffers = net.buffers();
    return state;
}

}  // namespace data_parallel

}  // namespace ddp
