// Gradients by hand, for tests of the reducer: adding to one, and reading what became of it.
#pragma once

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace ddp::testing {

inline void add_gradient(std::span<Parameter> parameters, std::size_t index, float amount) {
    for (float& grad : parameters[index].grad.as<float>()) grad += amount;
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
