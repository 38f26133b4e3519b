#include "nn/cuda_mlp.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "nn/cuda_kernels.hpp"
#include "nn/cuda_memory.hpp"

namespace nn {

using gpu::check;

struct CudaMlp::Impl {
    struct LayerMemory {
        gpu::Layer size;
        gpu::DeviceArray<float> weight, weight_grad, bias, bias_grad;
    };

    gpu::OwnStream stream = gpu::make_stream();
    std::vector<LayerMemory> layers;
    std::vector<ddp::Parameter> parameters;  // layer l: weight at 2 l, bias at 2 l + 1
    ddp::GradientReady gradient_ready;

    std::size_t rows = 0;  // of the last batch
    std::size_t room = 0;  // rows that there is memory for
    gpu::DeviceArray<float> images;
    gpu::DeviceArray<std::int32_t> labels;
    gpu::DeviceArray<double> loss = gpu::make_device_array<double>(1);
    std::vector<gpu::DeviceArray<float>> outputs, gradients;  // of each layer

    float* value(std::size_t p) { return static_cast<float*>(parameters[p].value.data); }
    float* grad(std::size_t p) { return static_cast<float*>(parameters[p].grad.data); }
    const float* input(std::size_t layer) {
        return layer == 0 ? images.get() : outputs[layer - 1].get();
    }
    void make_room(std::size_t for_rows);
    void copy(void* to, const void* from, std::size_t bytes) const {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    }
    void finish() const { check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
};

void CudaMlp::Impl::make_room(std::size_t for_rows) {
    if (for_rows <= room) return;
    room = for_rows;
    images = gpu::make_device_array<float>(room * layers.front().size.inputs);
    labels = gpu::make_device_array<std::int32_t>(room);
    outputs.clear();
    gradients.clear();
    for (const LayerMemory& layer : layers) {
        outputs.push_back(gpu::make_device_array<float>(room * layer.size.outputs));
        gradients.push_back(gpu::make_device_array<float>(room * layer.size.outputs));
    }
}

CudaMlp::CudaMlp(const Mlp& net, ddp::Device device) : impl_(std::make_unique<Impl>()) {
    const auto theirs = net.parameters();
    for (std::size_t p = 0; p < theirs.size(); p += 2) {
        const ddp::TensorView& weight = theirs[p].value;
        const gpu::Layer size{static_cast<std::size_t>(weight.shape[1]),
                              static_cast<std::size_t>(weight.shape[0])};
        Impl::LayerMemory layer{size, gpu::make_device_array<float>(weight.numel()),
                                gpu::make_device_array<float>(weight.numel()),
                                gpu::make_device_array<float>(size.outputs),
                                gpu::make_device_array<float>(size.outputs)};
        const auto add = [&](const ddp::Parameter& from, float* value, float* grad) {
            const ddp::TensorView& like = from.value;
            impl_->copy(value, like.data, like.bytes());
            impl_->parameters.push_back({from.name,
                                         {value, like.shape, like.dtype, device},
                                         {grad, like.shape, like.dtype, device}});
        };
        add(theirs[p], layer.weight.get(), layer.weight_grad.get());
        add(theirs[p + 1], layer.bias.get(), layer.bias_grad.get());
        impl_->layers.push_back(std::move(layer));
    }
    impl_->finish();
}

CudaMlp::~CudaMlp() = default;

std::span<ddp::Parameter> CudaMlp::parameters() { return impl_->parameters; }
void CudaMlp::on_gradient_ready(ddp::GradientReady hook) {
    impl_->gradient_ready = std::move(hook);
}
ddp::Stream CudaMlp::stream() const { return impl_->stream.get(); }

double CudaMlp::forward(std::span<const float> images, std::span<const std::int32_t> labels) {
    Impl& my = *impl_;
    my.rows = labels.size();
    my.make_room(my.rows);
    my.copy(my.images.get(), images.data(), images.size_bytes());
    my.copy(my.labels.get(), labels.data(), labels.size_bytes());
    for (std::size_t l = 0; l < my.layers.size(); ++l) {
        gpu::linear(my.input(l), my.value(2 * l), my.value(2 * l + 1), my.outputs[l].get(), my.rows,
                    my.layers[l].size, l + 1 < my.layers.size(), my.stream.get());
    }
    check(cudaMemsetAsync(my.loss.get(), 0, sizeof(double), my.stream.get()), "cudaMemsetAsync");
    gpu::softmax_cross_entropy(my.outputs.back().get(), my.labels.get(), my.gradients.back().get(),
                               my.loss.get(), my.rows, my.layers.back().size.outputs,
                               my.stream.get());
    check(cudaGetLastError(), "forward");
    double loss = 0;
    my.copy(&loss, my.loss.get(), sizeof loss);
    my.finish();
    return loss;
}

void CudaMlp::backward() {
    Impl& my = *impl_;
    for (std::size_t l = my.layers.size(); l-- > 0;) {
        gpu::add_linear_gradients(my.input(l), my.gradients[l].get(), my.grad(2 * l),
                                  my.grad(2 * l + 1), my.rows, my.layers[l].size, my.stream.get());
        if (my.gradient_ready) {
            my.gradient_ready(2 * l + 1, my.stream.get());
            my.gradient_ready(2 * l, my.stream.get());
        }
        if (l == 0) break;
        gpu::rectified_input_gradient(my.gradients[l].get(), my.value(2 * l), my.input(l),
                                      my.gradients[l - 1].get(), my.rows, my.layers[l].size,
                                      my.stream.get());
    }
    check(cudaGetLastError(), "backward");
}

void CudaMlp::copy_to(Mlp& net) const {
    const auto theirs = net.parameters();
    for (std::size_t p = 0; p < theirs.size(); ++p) {
        const ddp::TensorView& value = impl_->parameters[p].value;
        impl_->copy(theirs[p].value.data, value.data, value.bytes());
    }
    impl_->finish();
}

struct CudaSgd::Impl {
    CudaMlp& net;
    SgdOptions options;
    std::vector<gpu::DeviceArray<float>> velocities;  // in the order of the parameters
};

CudaSgd::CudaSgd(CudaMlp& net, const SgdOptions& options)
    : impl_(std::make_unique<Impl>(Impl{net, options, {}})) {
    for (const ddp::Parameter& parameter : net.parameters()) {
        impl_->velocities.push_back(gpu::make_device_array<float>(parameter.value.numel()));
    }
}

CudaSgd::~CudaSgd() = default;

void CudaSgd::step() {
    const auto parameters = impl_->net.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        gpu::sgd_step(static_cast<float*>(parameters[p].value.data),
                      static_cast<float*>(parameters[p].grad.data), impl_->velocities[p].get(),
                      parameters[p].value.numel(), impl_->options.learning_rate,
                      impl_->options.momentum, impl_->net.stream().handle());
    }
    check(cudaGetLastError(), "sgd_step");
}

std::vector<ddp::NamedTensor> CudaSgd::state_dict() {
    std::vector<ddp::NamedTensor> state;
    const auto parameters = impl_->net.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const ddp::TensorView& value = parameters[p].value;
        state.push_back({"momentum." + parameters[p].name,
                         {impl_->velocities[p].get(), value.shape, value.dtype, value.device}});
    }
    return state;
}

}  // namespace nn
