#include "nn/cuda_kernels.hpp"

namespace nn::gpu {

namespace {

constexpr unsigned threads = 256;

unsigned blocks_for(std::size_t elements) {
    return static_cast<unsigned>((elements + threads - 1) / threads);
}

__device__ std::size_t own_element() {
    return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void linear_kernel(const float* x, const float* weight, const float* bias, float* y,
                              std::size_t rows, Layer layer, bool rectified) {
    const std::size_t at = own_element();
    if (at >= rows * layer.outputs) return;
    const std::size_t row = at / layer.outputs, output = at % layer.outputs;
    float sum = bias[output];
    for (std::size_t i = 0; i < layer.inputs; ++i) {
        sum += x[row * layer.inputs + i] * weight[output * layer.inputs + i];
    }
    y[at] = rectified && sum < 0 ? 0 : sum;
}

// The thread after the last weight of an output makes its bias.
__global__ void gradients_kernel(const float* x, const float* dy, float* weight_grad,
                                 float* bias_grad, std::size_t rows, Layer layer) {
    const std::size_t at = own_element();
    if (at >= (layer.inputs + 1) * layer.outputs) return;
    const std::size_t output = at / (layer.inputs + 1), input = at % (layer.inputs + 1);
    const bool is_bias = input == layer.inputs;
    float sum = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        const float factor = is_bias ? 1 : x[row * layer.inputs + input];
        sum += dy[row * layer.outputs + output] * factor;
    }
    if (is_bias) {
        bias_grad[output] += sum;
    } else {
        weight_grad[output * layer.inputs + input] += sum;
    }
}

__global__ void input_gradient_kernel(const float* dy, const float* weight, const float* x,
                                      float* dx, std::size_t rows, Layer layer) {
    const std::size_t at = own_element();
    if (at >= rows * layer.inputs) return;
    const std::size_t row = at / layer.inputs, input = at % layer.inputs;
    float sum = 0;
    for (std::size_t o = 0; o < layer.outputs; ++o) {
        sum += dy[row * layer.outputs + o] * weight[o * layer.inputs + input];
    }
    dx[at] = x[at] > 0 ? sum : 0;
}

// One block: the rows' losses are added in one order.
__global__ void cross_entropy_kernel(const float* logits, const std::int32_t* labels,
                                     float* gradient, double* loss, std::size_t rows,
                                     std::size_t classes) {
    __shared__ double sums[threads];
    double sum = 0;
    for (std::size_t row = threadIdx.x; row < rows; row += threads) {
        const float* const logit = logits + row * classes;
        float largest = logit[0];
        for (std::size_t c = 1; c < classes; ++c) largest = fmaxf(largest, logit[c]);
        float total = 0;
        for (std::size_t c = 0; c < classes; ++c) total += expf(logit[c] - largest);
        const auto label = static_cast<std::size_t>(labels[row]);
        sum += logf(total) + largest - logit[label];
        for (std::size_t c = 0; c < classes; ++c) {
            const float probability = expf(logit[c] - largest) / total;
            gradient[row * classes + c] =
                (probability - (c == label ? 1.0F : 0.0F)) / static_cast<float>(rows);
        }
    }
    sums[threadIdx.x] = sum;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *loss += sums[0] / static_cast<double>(rows);
}

__global__ void sgd_kernel(float* weights, float* gradient, float* velocity, std::size_t count,
                           float rate, float momentum) {
    const std::size_t at = own_element();
    if (at >= count) return;
    velocity[at] = momentum * velocity[at] + gradient[at];
    weights[at] -= rate * velocity[at];
    gradient[at] = 0;
}

}  // namespace

void linear(const float* x, const float* weight, const float* bias, float* y, std::size_t rows,
            Layer layer, bool rectified, CUstream_st* stream) {
    linear_kernel<<<blocks_for(rows * layer.outputs), threads, 0, stream>>>(x, weight, bias, y,
                                                                            rows, layer, rectified);
}

void add_linear_gradients(const float* x, const float* dy, float* weight_grad, float* bias_grad,
                          std::size_t rows, Layer layer, CUstream_st* stream) {
    gradients_kernel<<<blocks_for((layer.inputs + 1) * layer.outputs), threads, 0, stream>>>(
        x, dy, weight_grad, bias_grad, rows, layer);
}

void rectified_input_gradient(const float* dy, const float* weight, const float* x, float* dx,
                              std::size_t rows, Layer layer, CUstream_st* stream) {
    input_gradient_kernel<<<blocks_for(rows * layer.inputs), threads, 0, stream>>>(dy, weight, x,
                                                                                   dx, rows, layer);
}

void softmax_cross_entropy(const float* logits, const std::int32_t* labels, float* gradient,
                           double* loss, std::size_t rows, std::size_t classes,
                           CUstream_st* stream) {
    cross_entropy_kernel<<<1, threads, 0, stream>>>(logits, labels, gradient, loss, rows, classes);
}

void sgd_step(float* weights, float* gradient, float* velocity, std::size_t count, float rate,
              float momentum, CUstream_st* stream) {
    sgd_kernel<<<blocks_for(count), threads, 0, stream>>>(weights, gradient, velocity, count, rate,
                                                          momentum);
}

}  // namespace nn::gpu
