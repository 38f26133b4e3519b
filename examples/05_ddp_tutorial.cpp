// The data-parallel tutorial once more, as PyTorch recommends it: one process for each device, all
// started by ddp-launch. Each rank has its own half of the 90 rows and batches of its own, 30 rows
// PER RANK; DistributedDataParallel averages the gradients.
//   run:       ddp-launch --nproc-per-node=2 ./05_ddp_tutorial --device auto    (or cpu, or cuda)
//   expected, in any order of the ranks:
//     Let's use 2 devices!
//     Let's use 2 devices!
//     In Model: input size [30, 5] output size [30, 2]
//     In Model: input size [30, 5] output size [30, 2]
//     Outside: input size [30, 5] output_size [30, 2]
//     Outside: input size [30, 5] output_size [30, 2]
//     In Model: input size [15, 5] output size [15, 2]
//     In Model: input size [15, 5] output size [15, 2]
//     Outside: input size [15, 5] output_size [15, 2]
//     Outside: input size [15, 5] output_size [15, 2]
#include <ddp/ddp.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data_parallel_program.hpp"  // print_line
#include "nn/device_linear.hpp"

namespace {

constexpr std::size_t input_size = 5;
constexpr std::size_t output_size = 2;
constexpr std::size_t batch_size = 30;  // of each rank
constexpr std::int64_t data_size = 90;
constexpr float learning_rate = 0.1F;

// One layer on DeviceScope::current(). on_gradient_ready makes it a net for
// DistributedDataParallel.
class Model {
public:
    explicit Model(nn::LinearSize size) : fc_(size), parameters_(fc_.make_parameters("fc")) {}

    std::span<ddp::Parameter> parameters() { return parameters_; }
    void on_gradient_ready(ddp::GradientReady hook) { hook_ = std::move(hook); }

    ddp::Tensor forward(const ddp::Tensor& input) {
        ddp::Tensor output = fc_.forward(input);
        nn::print_line("In Model: input size " + to_string(input.shape()) + " output size " +
                       to_string(output.shape()));
        return output;
    }
    void backward(const ddp::Tensor& gradient) {
        fc_.backward(gradient);
        for (std::size_t i = 0; hook_ && i < parameters_.size(); ++i) hook_(i, {});
    }

private:
    nn::DeviceLinear fc_;
    std::vector<ddp::Parameter> parameters_;
    ddp::GradientReady hook_;
};

// One step of gradient descent on any device; then the gradients are zero.
void descend(std::span<ddp::Parameter> parameters) {
    for (const ddp::Parameter& parameter : parameters) {
        const auto value = ddp::clone(parameter.value, {.device = ddp::Device{}});
        const auto gradient = ddp::clone(parameter.grad, {.device = ddp::Device{}});
        for (std::size_t i = 0; i < value.numel(); ++i) {
            value.as<float>()[i] -= learning_rate * gradient.as<float>()[i];
        }
        ddp::copy_elements(value, parameter.value);
        ddp::copy_elements(ddp::zeros_like(parameter.grad), parameter.grad);
    }
}

// The rank's own device, chosen by init_process_group, unless --device says otherwise.
ddp::Device choose_device(std::span<char*> arguments, const ddp::ProcessGroup& group) {
    if (arguments.empty()) return group.device();
    const bool known = arguments.size() == 2 && std::string_view(arguments[0]) == "--device";
    const std::string_view device = known ? arguments[1] : "";
    if (device == "auto") return group.device();
    if (device == "cpu") return {};
    if (device != "cuda") throw ddp::UsageError("usage: 05_ddp_tutorial [--device auto|cpu|cuda]");
    if (group.device().type != ddp::DeviceType::cuda) {
        throw ddp::UsageError("05_ddp_tutorial: this rank has no GPU; --device auto takes the CPU");
    }
    return group.device();
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        auto group = ddp::init_process_group();
        const auto device = choose_device({argv + 1, argv + argc}, group);
        const ddp::DeviceScope scope{device};
        const char* what = device.type == ddp::DeviceType::cuda ? " GPUs!" : " devices!";
        nn::print_line("Let's use " + std::to_string(group.size()) + what);

        Model net{{input_size, output_size}};
        ddp::DistributedDataParallel model{// the layer's gradients stay in memory of its own
                                           net,
                                           group,
                                           {.gradient_as_bucket_view = false}};

        // The same rows on every rank, thanks to the seed; the sampler picks this rank's.
        const auto rows =
            ddp::randn({data_size, input_size}, 17, {.device = ddp::Device{}}).chunk(data_size);
        ddp::DistributedSampler sampler{rows.size(), group.shard(), {.seed = 17}};
        const ddp::DataLoader loader{
            rows, sampler, {.batch_size = batch_size}, [](const std::vector<ddp::Tensor>& samples) {
                return ddp::cat(samples);  // [1, 5] each
            }};
        sampler.set_epoch(0);
        for (const ddp::Tensor& batch : loader) {
            const ddp::Tensor input = batch.to(device);
            const ddp::Tensor output = model.forward(input);
            nn::print_line("Outside: input size " + to_string(input.shape()) + " output_size " +
                           to_string(output.shape()));
            // The loss is half the sum of the outputs' squares.
            if (model.backward(output)) descend(model.parameters());
        }
    });
}
