// The digits without a module or an optimiser class: plain pointers, own kernels and an own stream,
// as llm.c trains. The host puts a step on the stream and prepares the next batch; it waits for the
// loss once an epoch.
//   run:       ddp-launch --nproc-per-node=1 ./09_cuda_digits [--graph]    (one rank a GPU)
//   expected:  epoch 1 loss 2.0...                        30 such lines on stderr, from rank 0
//              rank 0 of 1: accuracy 0.97.. weights ...   at the end, on stdout, of each rank
// With --graph a whole step, collectives included, is a CUDA graph: the same weights.
#include <ddp/ddp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "nn/cuda_kernels.hpp"
#include "nn/cuda_memory.hpp"
#include "nn/digits.hpp"
#include "nn/digits_program.hpp"
#include "nn/mlp.hpp"

using namespace nn;
using gpu::check;

namespace {

constexpr std::size_t inputs = Digits::pixels, hidden = 128, classes = 10;
constexpr gpu::Layer layer_1{inputs, hidden}, layer_2{hidden, classes};
enum Index : std::size_t { weight_1, bias_1, weight_2, bias_2, parameter_count };
constexpr float rate = 0.1F, momentum = 0.9F;

// A batch on its way to the GPU.
struct Staging {
    gpu::PinnedArray<float> images;
    gpu::PinnedArray<std::int32_t> labels;
    gpu::OwnEvent copied = gpu::make_event();
};

struct Training {
    gpu::OwnStream stream = gpu::make_stream();
    std::vector<gpu::DeviceArray<float>> memory;
    std::vector<ddp::Parameter> parameters;
    std::vector<float*> velocity;
    // Of one batch.
    float *images, *activations, *logits, *dlogits, *dactivations;
    gpu::DeviceArray<std::int32_t> labels;
    gpu::DeviceArray<double> loss = gpu::make_device_array<double>(1);
    Staging staging[2];
    std::size_t steps = 0, graphs = 0;

    float* floats(std::size_t count) {
        memory.push_back(gpu::make_device_array<float>(count));
        return memory.back().get();
    }
    float* value(Index p) const { return static_cast<float*>(parameters[p].value.data); }
    // Asked for in every step: the reducer moves gradients into its buckets.
    float* grad(Index p) const { return static_cast<float*>(parameters[p].grad.data); }
};

Training allocate(const Mlp& start, std::size_t batch, ddp::Device device) {
    Training t;
    for (const ddp::Parameter& from : start.parameters()) {
        const ddp::TensorView& like = from.value;
        float* const value = t.floats(like.numel());
        check(cudaMemcpy(value, like.data, like.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        t.parameters.push_back({from.name,
                                {value, like.shape, like.dtype, device},
                                {t.floats(like.numel()), like.shape, like.dtype, device}});
        t.velocity.push_back(t.floats(like.numel()));
    }
    t.images = t.floats(batch * inputs);
    t.activations = t.floats(batch * hidden);
    t.logits = t.floats(batch * classes);
    t.dlogits = t.floats(batch * classes);
    t.dactivations = t.floats(batch * hidden);
    t.labels = gpu::make_device_array<std::int32_t>(batch);
    for (Staging& staging : t.staging) {
        staging.images = gpu::make_pinned_array<float>(batch * inputs);
        staging.labels = gpu::make_pinned_array<std::int32_t>(batch);
    }
    return t;
}

// Pinned memory is free again when the copies of the step before the last are done.
void load(Training& t, const Digits::Batch& batch) {
    const std::span images(batch.images);
    const std::span labels(batch.labels);
    Staging& staging = t.staging[t.steps++ % 2];
    check(cudaEventSynchronize(staging.copied.get()), "cudaEventSynchronize");
    std::copy(images.begin(), images.end(), staging.images.get());
    std::copy(labels.begin(), labels.end(), staging.labels.get());
    check(cudaMemcpyAsync(t.images, staging.images.get(), images.size_bytes(),
                          cudaMemcpyHostToDevice, t.stream.get()),
          "cudaMemcpyAsync");
    check(cudaMemcpyAsync(t.labels.get(), staging.labels.get(), labels.size_bytes(),
                          cudaMemcpyHostToDevice, t.stream.get()),
          "cudaMemcpyAsync");
    check(cudaEventRecord(staging.copied.get(), t.stream.get()), "cudaEventRecord");
}

void step(Training& t, ddp::Reducer& reducer, std::size_t rows) {
    cudaStream_t const stream = t.stream.get();
    gpu::linear(t.images, t.value(weight_1), t.value(bias_1), t.activations, rows, layer_1, true,
                stream);
    gpu::linear(t.activations, t.value(weight_2), t.value(bias_2), t.logits, rows, layer_2, false,
                stream);
    gpu::softmax_cross_entropy(t.logits, t.labels.get(), t.dlogits, t.loss.get(), rows, classes,
                               stream);

    gpu::add_linear_gradients(t.activations, t.dlogits, t.grad(weight_2), t.grad(bias_2), rows,
                              layer_2, stream);
    reducer.mark_ready(bias_2, stream);
    reducer.mark_ready(weight_2, stream);
    gpu::rectified_input_gradient(t.dlogits, t.value(weight_2), t.activations, t.dactivations, rows,
                                  layer_2, stream);
    gpu::add_linear_gradients(t.images, t.dactivations, t.grad(weight_1), t.grad(bias_1), rows,
                              layer_1, stream);
    reducer.mark_ready(bias_1, stream);
    reducer.mark_ready(weight_1, stream);

    if (!reducer.wait(stream)) return;  // what comes on this stream now sees averages
    for (std::size_t p = 0; p < parameter_count; ++p) {
        gpu::sgd_step(t.value(Index{p}), t.grad(Index{p}), t.velocity[p],
                      t.parameters[p].value.numel(), rate, momentum, stream);
    }
    check(cudaGetLastError(), "step");
}

// The first step is none of a graph's: it orders the reducer's buckets.
void step_as_graph(Training& t, ddp::Reducer& reducer, std::size_t rows, gpu::OwnGraph& graph) {
    if (t.steps == 1) return step(t, reducer, rows);
    if (!graph) graph = gpu::capture(t.stream.get(), [&] { step(t, reducer, rows); });
    check(cudaGraphLaunch(graph.get(), t.stream.get()), "cudaGraphLaunch");
    ++t.graphs;
}

// Of all steps since the last call.
double take_loss(Training& t) {
    double loss = 0;
    check(cudaMemcpyAsync(&loss, t.loss.get(), sizeof loss, cudaMemcpyDeviceToHost, t.stream.get()),
          "cudaMemcpyAsync");
    check(cudaMemsetAsync(t.loss.get(), 0, sizeof loss, t.stream.get()), "cudaMemsetAsync");
    check(cudaStreamSynchronize(t.stream.get()), "cudaStreamSynchronize");
    return loss;
}

void copy_weights(const Training& t, Mlp& net) {
    for (std::size_t p = 0; p < parameter_count; ++p) {
        const ddp::TensorView& to = net.parameters()[p].value;
        check(cudaMemcpy(to.data, t.value(Index{p}), to.bytes(), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    }
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const bool as_graph = argc > 1 && std::string_view(argv[1]) == "--graph";
        const auto options =
            as_graph ? parse_options(argc - 1, argv + 1) : parse_options(argc, argv);
        auto group = ddp::init_process_group({.backend = ddp::Backend::nccl});
        const auto [data, test] = Digits::load(options.data).split_every(5);
        ddp::DistributedSampler sampler{
            data.size(), group.shard(), {.seed = 17, .drop_last = true}};
        const std::size_t batch = options.batch_size(group);
        ddp::DataLoader loader{data, sampler, {.batch_size = batch, .drop_last = true}};

        Mlp net{inputs, hidden, classes};  // on the host: the first weights, and the last
        Training t = allocate(net, batch, group.device());
        {
            ddp::Reducer reducer{t.parameters, group, {.gradient_as_bucket_view = true}};
            gpu::OwnGraph graph;  // goes before what it uses: the reducer's buckets, the group
            for (int epoch = 0; epoch < options.epochs; ++epoch) {
                sampler.set_epoch(epoch);
                for (const auto& samples : loader) {
                    load(t, samples);
                    if (as_graph) {
                        step_as_graph(t, reducer, samples.labels.size(), graph);
                    } else {
                        step(t, reducer, samples.labels.size());
                    }
                }
                const double mean = take_loss(t) / static_cast<double>(loader.size());
                report(group, epoch + 1, group.all_reduce(mean, ddp::ReduceOp::avg));
            }
        }
        if (as_graph && group.rank() == 0) {
            std::fprintf(stderr, "%zu of %zu steps were a graph's\n", t.graphs, t.steps);
        }
        copy_weights(t, net);
        print_result(group, accuracy(net, test), digest(net));
    });
}
