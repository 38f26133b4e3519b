// Loss and gradient in one pass over the rows, since both need the same exponentials.
// Subtracts each row's maximum first, so that exp() cannot overflow; sums in double.
#include "nn/softmax_cross_entropy.hpp"

#include <algorithm>
#include <cmath>

namespace nn {

double softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                             std::span<float> gradient) {
    const std::size_t rows = labels.size();
    const std::size_t classes = logits.size() / rows;
    double loss = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        const auto in = logits.subspan(row * classes, classes);
        const auto out = gradient.subspan(row * classes, classes);
        const auto label = static_cast<std::size_t>(labels[row]);
        const double max = *std::ranges::max_element(in);
        double sum = 0;
        for (const float logit : in) sum += std::exp(logit - max);
        loss += std::log(sum) + max - in[label];
        for (std::size_t c = 0; c < classes; ++c) {
            const double probability = std::exp(in[c] - max) / sum;
            const double target = c == label ? 1 : 0;
            out[c] = static_cast<float>((probability - target) / static_cast<double>(rows));
        }
    }
    return loss / static_cast<double>(rows);
}

}  // namespace nn
