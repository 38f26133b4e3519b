// Gradients by hand, for tests of the reducer: adding to one, and reading what became of it.
#pragma once

#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>
#include <ddp/reducer.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

inline void add_gradient(std::span<Parameter> parameters, std::size_t index, float amount) {
    for (float& grad : parameters[index].grad.as<float>()) grad += amount;
}

// A backward in which these gradients come, in this order.
inline void mark_with(ToyNet& net, Reducer& reducer, const std::vector<std::size_t>& parameters,
                      float amount) {
    for (const std::size_t parameter : parameters) {
        add_gradient(net.parameters(), parameter, amount);
        reducer.mark_ready(parameter);
    }
}

inline bool gradient_is(std::span<Parameter> parameters, std::size_t index, float expected) {
    for (const float grad : parameters[index].grad.as<float>()) {
        if (grad != expected) return false;
    }
    return true;
}

inline std::string usage_error_of(const auto& call) {
    try {
        call();
        return "no error";
    } catch (const UsageError& error) {
        return error.what();
    }
}

}  // namespace ddp::testing
