// PyTorch's tutorial "Optional: Data Parallelism": one process cuts each batch over several
// devices, where copies of one model work on it. --device-ids 0,1 chooses among them, --memory
// prints how many bytes each device needs at most.
//   run:       DDP_CPU_DEVICES=3 ./04_data_parallel
//   expected:
//     Let's use 3 devices!
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     Outside: input size [30, 5] output_size [30, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     Outside: input size [30, 5] output_size [30, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     In Model: input size [10, 5] output size [10, 2]
//     Outside: input size [30, 5] output_size [30, 2]
//     In Model: input size [4, 5] output size [4, 2]
//     In Model: input size [4, 5] output size [4, 2]
//     In Model: input size [2, 5] output size [2, 2]
//     Outside: input size [10, 5] output_size [10, 2]
//     DataParallel((module): Model((fc): Linear(in_features=5, out_features=2, bias=True)))
//     model.module().fc: Linear(in_features=5, out_features=2, bias=True)
#include <ddp/ddp.hpp>

#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "nn/data_parallel_program.hpp"  // the example's options and its table of memory
#include "nn/device_linear.hpp"

namespace {

constexpr std::size_t input_size = 5;
constexpr std::size_t output_size = 2;
constexpr std::size_t batch_size = 30;  // of all devices together
constexpr std::size_t data_size = 100;

// Rows of normal numbers; the loader stacks them to batches.
class RandomDataset {
public:
    RandomDataset(std::size_t inputs, std::size_t length)
        : rows_(ddp::randn({static_cast<std::int64_t>(length), static_cast<std::int64_t>(inputs)},
                           17, {.device = ddp::Device{}})) {}
    std::size_t size() const { return static_cast<std::size_t>(rows_.shape()[0]); }
    ddp::Tensor operator[](std::size_t index) const { return rows_[index]; }

private:
    ddp::Tensor rows_;
};

class Model {
public:
    explicit Model(nn::LinearSize size) : fc(size), parameters_(fc.make_parameters("fc")) {}

    std::span<ddp::Parameter> parameters() { return parameters_; }
    Model replicate(const ddp::Device& device) const {
        const ddp::DeviceScope scope{device};
        return Model{fc.size()};
    }
    ddp::Tensor forward(const ddp::Tensor& input) {
        ddp::Tensor output = fc.forward(input);
        // One string, one call: replicas print at the same time.
        nn::print_line("In Model: input size " + to_string(input.shape()) + " output size " +
                       to_string(output.shape()));
        return output;
    }

    nn::DeviceLinear fc;

private:
    std::vector<ddp::Parameter> parameters_;
};

std::string to_string(const Model& model) { return "Model((fc): " + to_string(model.fc) + ")"; }

void run(const nn::DataParallelProgram& program) {
    const auto devices = ddp::data_parallel::assign_devices(program.options).devices;
    const ddp::DeviceScope scope{devices.front()};
    Model net{{input_size, output_size}};
    ddp::DataParallel model{net, program.options};
    if (model.devices().size() > 1) {
        const char* what = devices.front().type == ddp::DeviceType::cuda ? " GPUs!" : " devices!";
        nn::print_line("Let's use " + std::to_string(model.devices().size()) + what);
    }

    const RandomDataset dataset{input_size, data_size};
    const ddp::DataLoader loader{dataset, {.batch_size = batch_size, .shuffle = true}};
    for (const ddp::Tensor& input : loader) {
        const ddp::Tensor output = model.forward(input);
        nn::print_line("Outside: input size " + to_string(input.shape()) + " output_size " +
                       to_string(output.shape()));
    }
    std::cout << model << "\nmodel.module().fc: " << to_string(model.module().fc) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const auto program = nn::parse_data_parallel_options(argc, argv);
        program.memory ? nn::print_memory(program.options) : run(program);
    });
}
