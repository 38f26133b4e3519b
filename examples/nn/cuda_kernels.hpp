// What a small network needs of a GPU, as plain functions: each puts one kernel on the stream and
// returns. Pointers are of the stream's GPU; matrices are row by row. One thread makes one element
// of a result, in a loop of a fixed order, so that the same input gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;  // what cudaStream_t points to

namespace nn::gpu {

struct Layer {
    std::size_t inputs;
    std::size_t outputs;
};

// y [rows, outputs] = x [rows, inputs] * weight [outputs, inputs]^T + bias, negative ones made 0
// when `rectified`.
void linear(const float* x, const float* weight, const float* bias, float* y, std::size_t rows,
            Layer layer, bool rectified, CUstream_st* stream);
// weight_grad += dy^T x, bias_grad += the sum of dy's rows.
void add_linear_gradients(const float* x, const float* dy, float* weight_grad, float* bias_grad,
                          std::size_t rows, Layer layer, CUstream_st* stream);
// dx = dy * weight, 0 where x, which a rectifier has made, is 0.
void rectified_input_gradient(const float* dy, const float* weight, const float* x, float* dx,
                              std::size_t rows, Layer layer, CUstream_st* stream);
// Adds the mean over rows of -log softmax(logits)[label] to *loss; gradient = (softmax - one-hot) /
// rows.
void softmax_cross_entropy(const float* logits, const std::int32_t* labels, float* gradient,
                           double* loss, std::size_t rows, std::size_t classes,
                           CUstream_st* stream);
// velocity = momentum * velocity + gradient; weights -= rate * velocity; gradient = 0.
void sgd_step(float* weights, float* gradient, float* velocity, std::size_t count, float rate,
              float momentum, CUstream_st* stream);

}  // namespace nn::gpu
