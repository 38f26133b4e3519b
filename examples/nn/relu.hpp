// The rectifier max(0, x), in place, and its gradient. A NaN stays a NaN, so that a diverged run
// shows.
#pragma once

#include <span>

namespace nn {

void relu(std::span<float> x);
// Zeroes the gradient `dy` where the rectifier's output `y` was 0.
void relu_backward(std::span<const float> y, std::span<float> dy);

}  // namespace nn
