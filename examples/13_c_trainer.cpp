// A trainer in C's manner, as llm.c is written: all parameters in one array, all gradients in
// another, layers that are offsets into both, and no module. A Reducer averages the gradients where
// they are, each layer's while the layers below still compute. Learns sin(3 x) from 256 points, of
// which each rank has its share.
//   run:       ddp-launch --nproc-per-node=2 ./13_c_trainer     (alone: a world of one rank)
//   expected:
//     step 0 loss <loss>
//     step 500 loss <loss>
//     step 1000 loss <loss>
//     step 1500 loss <loss>
//     2 ranks, the same weights on all
#include <ddp/ddp.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int layers = 3;
constexpr std::size_t widths[layers + 1] = {1, 32, 32, 1};
constexpr int tensors = 2 * layers;  // of layer l: weight [inputs, outputs] at 2 l, bias at 2 l + 1

// Offsets into two arrays. `outputs` and their gradients are [rows, width] a layer.
struct Net {
    std::size_t rows;
    std::size_t sizes[tensors];
    std::vector<float> parameters, gradients;
    float* values[tensors];
    float* grads[tensors];
    std::vector<float> outputs[layers + 1], output_grads[layers + 1];
};

void allocate(Net& net, std::size_t rows) {
    net.rows = rows;
    std::size_t count = 0;
    for (int i = 0; i < tensors; ++i) {
        const int layer = i / 2;
        net.sizes[i] = widths[layer + 1] * (i % 2 == 0 ? widths[layer] : 1);
        count += net.sizes[i];
    }
    net.parameters.resize(count);
    net.gradients.resize(count);
    float* value = net.parameters.data();
    float* grad = net.gradients.data();
    for (int i = 0; i < tensors; value += net.sizes[i], grad += net.sizes[i], ++i) {
        net.values[i] = value;
        net.grads[i] = grad;
    }
    for (int layer = 0; layer <= layers; ++layer) {
        net.outputs[layer].resize(rows * widths[layer]);
        net.output_grads[layer].resize(rows * widths[layer]);
    }
}

void initialize(Net& net, unsigned seed) {
    std::mt19937 random(seed);
    for (float& value : net.parameters) {
        value = static_cast<float>(random() >> 8U) / (1U << 24U) - 0.5F;
    }
}

// Row r is point index + r * count of the 256 between -1 and 1.
void fill_in(Net& net, ddp::Shard shard) {
    for (std::size_t row = 0; row < net.rows; ++row) {
        const auto point = static_cast<float>(shard.index + row * shard.count);
        net.outputs[0][row] = point / 128 - 1;
    }
}

void forward_layer(Net& net, int layer) {
    const std::size_t inputs = widths[layer], outputs = widths[layer + 1];
    for (std::size_t row = 0; row < net.rows; ++row) {
        for (std::size_t o = 0; o < outputs; ++o) {
            float sum = net.values[2 * layer + 1][o];
            for (std::size_t i = 0; i < inputs; ++i) {
                sum +=
                    net.outputs[layer][row * inputs + i] * net.values[2 * layer][i * outputs + o];
            }
            net.outputs[layer + 1][row * outputs + o] = layer + 1 < layers ? std::tanh(sum) : sum;
        }
    }
}

// The mean squared error over this rank's rows, whose gradient it leaves behind.
float forward(Net& net) {
    for (int layer = 0; layer < layers; ++layer) forward_layer(net, layer);
    float loss = 0;
    for (std::size_t row = 0; row < net.rows; ++row) {
        const float error = net.outputs[layers][row] - std::sin(3 * net.outputs[0][row]);
        net.output_grads[layers][row] = 2 * error / static_cast<float>(net.rows);
        loss += error * error / static_cast<float>(net.rows);
    }
    return loss;
}

// Adds to the gradients of weight and bias; leaves that of the layer's inputs.
void backward_layer(Net& net, int layer) {
    const std::size_t inputs = widths[layer], outputs = widths[layer + 1];
    net.output_grads[layer].assign(net.rows * inputs, 0);
    for (std::size_t row = 0; row < net.rows; ++row) {
        for (std::size_t o = 0; o < outputs; ++o) {
            const float output = net.outputs[layer + 1][row * outputs + o];
            const float slope = layer + 1 < layers ? 1 - output * output : 1;
            const float grad = net.output_grads[layer + 1][row * outputs + o] * slope;
            net.grads[2 * layer + 1][o] += grad;
            for (std::size_t i = 0; i < inputs; ++i) {
                const std::size_t weight = i * outputs + o;
                net.grads[2 * layer][weight] += net.outputs[layer][row * inputs + i] * grad;
                net.output_grads[layer][row * inputs + i] += net.values[2 * layer][weight] * grad;
            }
        }
    }
}

// Prints the mean over ranks, once.
void report(ddp::ProcessGroup& group, int step, float loss) {
    const float mean = group.all_reduce(loss, ddp::ReduceOp::avg);
    if (group.rank() == 0) std::printf("step %d loss %.5f\n", step, mean);
}

bool same_on_all(ddp::ProcessGroup& group, const std::vector<float>& values) {
    std::vector<float> first = values;
    group.broadcast(first).wait();
    const int same = first == values ? 1 : 0;
    return group.all_reduce(same, ddp::ReduceOp::min) == 1;
}

void update(Net& net, float learning_rate) {
    for (std::size_t i = 0; i < net.parameters.size(); ++i) {
        net.parameters[i] -= learning_rate * net.gradients[i];
    }
}

void train(Net& net, ddp::ProcessGroup& group) {
    std::vector<ddp::Parameter> parameters;
    for (int i = 0; i < tensors; ++i) {  // in the order of the forward
        const std::string name = (i % 2 == 0 ? "weight " : "bias ") + std::to_string(i / 2);
        parameters.push_back(
            {name, std::span(net.values[i], net.sizes[i]), std::span(net.grads[i], net.sizes[i])});
    }
    ddp::Reducer reducer{parameters, group};

    for (int step = 0; step < 2000; ++step) {
        std::fill(net.gradients.begin(), net.gradients.end(), 0.0F);
        const float loss = forward(net);
        for (int layer = layers - 1; layer >= 0; --layer) {
            backward_layer(net, layer);
            const auto weight = 2 * static_cast<std::size_t>(layer);
            reducer.mark_ready(weight);
            reducer.mark_ready(weight + 1);  // bias
        }
        if (reducer.wait()) update(net, 0.05F);  // the gradients are averages over all ranks
        if (step % 500 == 0) report(group, step, loss);
    }
}

}  // namespace

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group();
        Net net;
        allocate(net, 256 / static_cast<std::size_t>(group.size()));
        initialize(net, static_cast<unsigned>(group.rank()));  // rank 0's will go to all
        fill_in(net, group.shard());
        train(net, group);
        const bool same = same_on_all(group, net.parameters);
        if (group.rank() == 0) {
            std::printf("%d ranks, %s weights on all\n", group.size(), same ? "the same" : "OTHER");
        }
    });
}
