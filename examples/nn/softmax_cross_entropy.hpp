// The loss of a classifier: the mean over rows of -log softmax(logits)[label], and its gradient, as
// torch.nn.CrossEntropyLoss.
#pragma once

#include <cstdint>
#include <span>

namespace nn {

// logits [rows, classes], labels [rows] -> the mean loss. Writes the gradient of the logits, which
// is (softmax - one-hot) / rows, to `gradient`.
double softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                             std::span<float> gradient);

}  // namespace nn
