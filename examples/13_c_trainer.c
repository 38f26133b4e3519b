// A trainer in plain C, of the shape of llm.c: all parameters in one array, all gradients in
// another, layers that are offsets into both. A ddp_reducer averages the gradients where they are,
// each layer's while the layers below still compute. Learns sin(3 x) from 256 points, of which each
// rank has its share.
//   run:       ddp-launch --nproc-per-node=2 ./13_c_trainer     (alone: a world of one rank)
//   expected:
//     step 0 loss <loss>
//     step 500 loss <loss>
//     step 1000 loss <loss>
//     step 1500 loss <loss>
//     2 ranks, the same weights on all
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { layers = 3, tensors = 2 * layers };  // of layer l: weight [inputs, outputs] at 2 l, bias
static const size_t widths[layers + 1] = {1, 32, 32, 1};
static const char* const names[tensors] = {"weight 0", "bias 0",   "weight 1",
                                           "bias 1",   "weight 2", "bias 2"};

// Offsets into two arrays. `outputs` and their gradients are [rows, width] a layer.
typedef struct Net {
    size_t rows;
    size_t count;
    size_t sizes[tensors];
    float *parameters, *gradients;
    float* values[tensors];
    float* grads[tensors];
    float *outputs[layers + 1], *output_grads[layers + 1];
} Net;

static float* floats(size_t count) {
    float* const memory = calloc(count, sizeof(float));
    if (memory == NULL) abort();
    return memory;
}

static void allocate(Net* net, size_t rows) {
    net->rows = rows;
    net->count = 0;
    for (int i = 0; i < tensors; ++i) {
        const int layer = i / 2;
        net->sizes[i] = widths[layer + 1] * (i % 2 == 0 ? widths[layer] : 1);
        net->count += net->sizes[i];
    }
    net->parameters = floats(net->count);
    net->gradients = floats(net->count);
    size_t offset = 0;
    for (int i = 0; i < tensors; offset += net->sizes[i], ++i) {
        net->values[i] = net->parameters + offset;
        net->grads[i] = net->gradients + offset;
    }
    for (int layer = 0; layer <= layers; ++layer) {
        net->outputs[layer] = floats(rows * widths[layer]);
        net->output_grads[layer] = floats(rows * widths[layer]);
    }
}

static void release(Net* net) {
    free(net->parameters);
    free(net->gradients);
    for (int layer = 0; layer <= layers; ++layer) {
        free(net->outputs[layer]);
        free(net->output_grads[layer]);
    }
}

static void initialize(Net* net, uint32_t seed) {
    for (size_t i = 0; i < net->count; ++i) {
        seed = seed * 1664525 + 1013904223;
        net->parameters[i] = (float)(seed >> 8) / (1 << 24) - 0.5F;
    }
}

// Row r is point rank + r * ranks of the 256 between -1 and 1.
static void fill_in(Net* net, const ddp_group* group) {
    for (size_t row = 0; row < net->rows; ++row) {
        const size_t ranks = (size_t)ddp_group_size(group);
        const size_t point = (size_t)ddp_group_rank(group) + row * ranks;
        net->outputs[0][row] = (float)point / 128 - 1;
    }
}

static void forward_layer(Net* net, int layer) {
    const size_t inputs = widths[layer], outputs = widths[layer + 1];
    const float *weight = net->values[2 * layer], *bias = net->values[2 * layer + 1];
    for (size_t row = 0; row < net->rows; ++row) {
        for (size_t o = 0; o < outputs; ++o) {
            float sum = bias[o];
            for (size_t i = 0; i < inputs; ++i) {
                sum += net->outputs[layer][row * inputs + i] * weight[i * outputs + o];
            }
            net->outputs[layer + 1][row * outputs + o] = layer + 1 < layers ? tanhf(sum) : sum;
        }
    }
}

// The mean squared error over this rank's rows, whose gradient it leaves behind.
static float forward(Net* net) {
    for (int layer = 0; layer < layers; ++layer) forward_layer(net, layer);
    float loss = 0;
    for (size_t row = 0; row < net->rows; ++row) {
        const float error = net->outputs[layers][row] - sinf(3 * net->outputs[0][row]);
        net->output_grads[layers][row] = 2 * error / (float)net->rows;
        loss += error * error / (float)net->rows;
    }
    return loss;
}

// Adds to the gradients of weight and bias; leaves that of the layer's inputs.
static void backward_layer(Net* net, int layer) {
    const size_t inputs = widths[layer], outputs = widths[layer + 1];
    memset(net->output_grads[layer], 0, net->rows * inputs * sizeof(float));
    for (size_t row = 0; row < net->rows; ++row) {
        for (size_t o = 0; o < outputs; ++o) {
            const float output = net->outputs[layer + 1][row * outputs + o];
            const float slope = layer + 1 < layers ? 1 - output * output : 1;
            const float grad = net->output_grads[layer + 1][row * outputs + o] * slope;
            net->grads[2 * layer + 1][o] += grad;
            for (size_t i = 0; i < inputs; ++i) {
                const size_t weight = i * outputs + o;
                net->grads[2 * layer][weight] += net->outputs[layer][row * inputs + i] * grad;
                net->output_grads[layer][row * inputs + i] += net->values[2 * layer][weight] * grad;
            }
        }
    }
}

// Prints the mean over ranks, once.
static ddp_status report(ddp_group* group, int step, float loss) {
    const ddp_tensor mean = ddp_cpu_tensor(&loss, 1, DDP_FLOAT32);
    const ddp_status status = ddp_all_reduce(group, mean, DDP_AVG, NULL, NULL);
    if (status == DDP_OK && ddp_group_rank(group) == 0) printf("step %d loss %.5f\n", step, loss);
    return status;
}

// Whether all ranks have rank 0's weights.
static ddp_status compare(ddp_group* group, const Net* net, int32_t* same) {
    float* const first = floats(net->count);
    memcpy(first, net->parameters, net->count * sizeof(float));
    const ddp_tensor weights = ddp_cpu_tensor(first, net->count, DDP_FLOAT32);
    ddp_status status = ddp_broadcast(group, weights, 0, NULL, NULL);
    *same = memcmp(first, net->parameters, net->count * sizeof(float)) == 0;
    free(first);
    if (status != DDP_OK) return status;
    return ddp_all_reduce(group, ddp_cpu_tensor(same, 1, DDP_INT32), DDP_MIN, NULL, NULL);
}

static void update(Net* net, float learning_rate) {
    for (size_t i = 0; i < net->count; ++i) {
        net->parameters[i] -= learning_rate * net->gradients[i];
    }
}

static ddp_status train_step(Net* net, ddp_group* group, ddp_reducer* reducer, int step) {
    memset(net->gradients, 0, net->count * sizeof(float));
    const float loss = forward(net);
    for (int layer = layers - 1; layer >= 0; --layer) {
        backward_layer(net, layer);
        const size_t weight = 2 * (size_t)layer;
        ddp_status status = ddp_reducer_mark_ready(reducer, weight, NULL);
        if (status == DDP_OK) status = ddp_reducer_mark_ready(reducer, weight + 1, NULL);  // bias
        if (status != DDP_OK) return status;
    }
    const ddp_status status = ddp_reducer_wait(reducer, NULL, NULL);
    if (status != DDP_OK) return status;
    update(net, 0.05F);  // the gradients are averages over all ranks
    return step % 500 == 0 ? report(group, step, loss) : DDP_OK;
}

static ddp_status train(Net* net, ddp_group* group) {
    ddp_parameter parameters[tensors];
    for (int i = 0; i < tensors; ++i) {  // in the order of the forward
        parameters[i].name = names[i];
        parameters[i].value = ddp_cpu_tensor(net->values[i], net->sizes[i], DDP_FLOAT32);
        parameters[i].grad = net->grads[i];
    }
    ddp_reducer* reducer = NULL;
    ddp_status status = ddp_reducer_create(group, parameters, tensors, NULL, &reducer);
    for (int step = 0; step < 2000 && status == DDP_OK; ++step) {
        status = train_step(net, group, reducer, step);
    }
    ddp_reducer_destroy(reducer);
    return status;
}

static ddp_status work(void* argument) {
    (void)argument;
    ddp_group* group = NULL;
    ddp_status status = ddp_init_process_group(NULL, &group);
    if (status != DDP_OK) return status;
    Net net;
    allocate(&net, 256 / (size_t)ddp_group_size(group));
    initialize(&net, (uint32_t)ddp_group_rank(group));  // rank 0's will go to all
    fill_in(&net, group);
    status = train(&net, group);
    int32_t same = 0;
    if (status == DDP_OK) status = compare(group, &net, &same);
    if (status == DDP_OK && ddp_group_rank(group) == 0) {
        const char* const which = same ? "the same" : "OTHER";
        printf("%d ranks, %s weights on all\n", ddp_group_size(group), which);
    }
    release(&net);
    ddp_group_destroy(group);
    return status;
}

int main(void) { return ddp_run_worker(work, NULL); }
