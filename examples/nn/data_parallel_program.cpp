#include "nn/data_parallel_program.hpp"

#include <ddp/error.hpp>
#include <ddp/memory.hpp>
#include <ddp/tensor_functions.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "nn/device_linear.hpp"
#include "nn/device_option.hpp"
#include "nn/softmax_cross_entropy.hpp"

namespace nn {

namespace {

constexpr const char* help =
    "Usage: 04_data_parallel [options]\n"
    "Runs batches of 30 rows through a model on several devices of this process.\n"
    "  --device auto|cpu|cuda  auto (default): the GPUs, or else the CPU's devices\n"
    "                          (DDP_CPU_DEVICES=N makes N of them)\n"
    "  --device-ids 0,1        these of them (default: all)\n"
    "  --memory                how many bytes each device needs, with the loss of all rows on one\n"
    "                          device and with each replica's own\n"
    "  --help                  this text\n";

[[noreturn]] void refuse(const std::string& what) {
    throw ddp::UsageError("04_data_parallel: " + what + "; --help lists the options");
}

std::vector<int> parse_ids(std::string_view text) {
    std::vector<int> ids;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;;) {
        int id = 0;
        const auto [next, error] = std::from_chars(at, end, id);
        if (error != std::errc{} || (next != end && *next != ',')) {
            refuse("--device-ids needs numbers such as 0,1, not '" + std::string(text) + "'");
        }
        ids.push_back(id);
        if (next == end) return ids;
        at = next + 1;
    }
}

// One layer with many outputs: what the loss needs is most of the memory.
constexpr LinearSize classifier_size{32, 512};

class Classifier {
public:
    Classifier() : fc_(classifier_size), parameters_(fc_.make_parameters("fc")) {}
    std::span<ddp::Parameter> parameters() { return parameters_; }
    Classifier replicate(const ddp::Device& device) const {
        const ddp::DeviceScope scope{device};
        return {};
    }
    ddp::Tensor forward(const ddp::Tensor& x) { return fc_.forward(x); }
    void backward(const ddp::Tensor& gradient) { fc_.backward(gradient); }

private:
    DeviceLinear fc_;
    std::vector<ddp::Parameter> parameters_;
};

// The mean over the whole batch's rows, as far as these rows contribute to it.
ddp::LossShare cross_entropy(const ddp::Tensor& logits, const ddp::Tensor& labels,
                             std::size_t rows) {
    const ddp::Tensor host =
        logits.device().type == ddp::DeviceType::cpu ? logits : logits.to(ddp::Device{});
    const ddp::Tensor own =
        labels.device().type == ddp::DeviceType::cpu ? labels : labels.to(ddp::Device{});
    const ddp::Tensor gradient = ddp::empty_like(host);
    const double loss =
        softmax_cross_entropy(host.as<float>(), own.as<std::int32_t>(), gradient.as<float>());
    const double share = static_cast<double>(labels.numel()) / static_cast<double>(rows);
    for (float& value : gradient.as<float>()) value *= static_cast<float>(share);
    return {loss * share, gradient.to(logits.device())};
}

struct Batch {
    ddp::Tensor images, labels;
};

// Peak bytes of each device in one such step.
template <class Step>
std::vector<std::size_t> measure(const ddp::DataParallelOptions& options, const Step& step) {
    Classifier net;
    ddp::DataParallel model{net, options};
    for (const ddp::Device& device : model.devices()) ddp::reset_peak_memory_stats(device);
    step(model);
    std::vector<std::size_t> peaks;
    for (const ddp::Device& device : model.devices()) {
        peaks.push_back(ddp::max_memory_allocated(device));
    }
    return peaks;
}

}  // namespace

DataParallelProgram parse_data_parallel_options(int argc, char** argv) {
    DataParallelProgram program;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        if (option == "--help") {
            std::fputs(help, stdout);
            std::exit(EXIT_SUCCESS);
        }
        if (option == "--memory") {
            program.memory = true;
            continue;
        }
        if (option != "--device" && option != "--device-ids") {
            refuse("unknown option '" + std::string(option) + "'");
        }
        if (i + 1 == argc) refuse(std::string(option) + " needs a value");
        const std::string_view value = argv[++i];
        if (option == "--device") {
            program.options.device_type = devices_for(value).front().type;
        } else {
            program.options.device_ids = parse_ids(value);
        }
    }
    return program;
}

void print_line(const std::string& line) { std::fputs((line + "\n").c_str(), stdout); }

void print_memory(const ddp::DataParallelOptions& options) {
    constexpr std::int64_t rows = 2400;
    const auto devices = ddp::data_parallel::assign_devices(options).devices;
    const ddp::DeviceScope scope{devices.front()};
    const Batch batch{ddp::randn({rows, classifier_size.inputs}, 17),
                      ddp::zeros({rows}, {.dtype = ddp::DType::int32})};
    const auto gathered = measure(options, [&](ddp::DataParallel<Classifier>& model) {
        const ddp::Tensor output = model.forward(batch.images);
        model.backward(cross_entropy(output, batch.labels, rows).gradient);
    });
    const auto in_replicas = measure(options, [&](ddp::DataParallel<Classifier>& model) {
        model.forward_loss(cross_entropy, batch.labels, batch.images);
        model.backward_loss();
    });
    std::printf("%-10s %18s %22s\n", "peak bytes", "outputs gathered", "loss in the replicas");
    for (std::size_t i = 0; i < devices.size(); ++i) {
        std::printf("%-10s %18zu %22zu\n", to_string(devices[i]).c_str(), gathered[i],
                    in_replicas[i]);
    }
}

}  // namespace nn
