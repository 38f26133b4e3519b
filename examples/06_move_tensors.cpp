// Moving tensors between devices: how it looks, and whether it is expensive.
//   run:       DDP_CPU_DEVICES=2 ./06_move_tensors --max-bytes 16K
//   options:   --device auto|cpu|cuda   to the first GPU (auto: where there is one), else to cpu:1
//              --max-bytes 256M         the largest row of the table
//   expected, with cuda:0 in place of cpu:1 on a GPU:
//     x is on cpu
//     tensor([[0.0000, 0.5000, 1.0000],
//             [1.5000, 2.0000, 2.5000]])
//     y = x.to(cpu:1), and x is still on cpu
//     tensor([[0.0000, 0.5000, 1.0000],
//             [1.5000, 2.0000, 2.5000]], device='cpu:1')
//     y.to(cpu, float64)
//     tensor([[0.0000, 0.5000, 1.0000],
//             [1.5000, 2.0000, 2.5000]], dtype=float64)
//     made there
//     tensor([1., 1., 1.], device='cpu:1')
//
//     is moving expensive? the copy alone, into memory that is there; ms and GB/s
//                 to cpu:1               back                pinned, to cpu:1    pinned, back
//     1 KiB       <ms> <GB/s>            <ms> <GB/s>         <ms> <GB/s>         <ms> <GB/s>
//     4 KiB       <ms> <GB/s>            <ms> <GB/s>         <ms> <GB/s>         <ms> <GB/s>
//     16 KiB      <ms> <GB/s>            <ms> <GB/s>         <ms> <GB/s>         <ms> <GB/s>
// Pinned memory is a GPU's affair: between CPU devices these columns are dashes.
#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "nn/device_option.hpp"

namespace {

struct Options {
    std::string device = "auto";
    std::size_t max_bytes = std::size_t{256} << 20U;
};

std::size_t parse_bytes(const std::string& text) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit(end, text.data() + text.size());
    const std::size_t shift = unit == "K" ? 10 : unit == "M" ? 20 : 0;
    const bool known = unit.empty() || shift > 0;
    if (error != std::errc{} || !known || number < 1 || number > (std::size_t{1} << 40U) >> shift) {
        throw ddp::UsageError("--max-bytes: a number such as 4096, 64K or 256M, not \"" + text +
                              "\"");
    }
    return number << shift;
}

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        const bool known = name == "--device" || name == "--max-bytes";
        if (!known || i + 1 == argc) {
            throw ddp::UsageError("what is " + name + "? Known: --device auto|cpu|cuda, " +
                                  "--max-bytes BYTES");
        }
        if (name == "--device") options.device = argv[i + 1];
        if (name == "--max-bytes") options.max_bytes = parse_bytes(argv[i + 1]);
    }
    return options;
}

ddp::Device choose_target(const std::string& choice) {
    const auto devices = nn::devices_for(choice);
    if (devices[0].type == ddp::DeviceType::cuda) return devices[0];
    if (devices.size() > 1) return devices[1];
    throw ddp::UsageError("there is one device, the CPU, and nowhere to move to; " +
                          std::string("DDP_CPU_DEVICES=2 makes two of it"));
}

void show_moves(const ddp::Device& target) {
    const ddp::Device cpu = ddp::Device::parse("cpu");
    const auto x = ddp::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 2.5F}).view({2, 3});
    std::cout << "x is on " << x.device() << "\n" << x << "\n";
    const auto y = x.to(target);  // a new tensor; x.to(target) alone would be lost
    std::cout << "y = x.to(" << target << "), and x is still on " << x.device() << "\n"
              << y << "\n";
    std::cout << "y.to(cpu, float64)\n" << y.to(cpu, ddp::DType::float64) << "\n";
    const ddp::DeviceScope scope{target};
    std::cout << "made there\n" << ddp::ones({3}) << "\n\n";
}

// The mean of as many copies as make 64 MiB together, but at least 5 and at most 1000.
std::string measure(const ddp::Tensor& from, const ddp::Tensor& to) {
    const std::size_t repeats =
        std::clamp<std::size_t>((std::size_t{64} << 20U) / from.bytes(), 5, 1000);
    ddp::copy_elements(from, to);  // the first one touches the pages
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < repeats; ++i) ddp::copy_elements(from, to);
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - begin;
    const double seconds = total.count() / static_cast<double>(repeats);
    char text[64];
    std::snprintf(text, sizeof text, "%9.5f %7.2f", seconds * 1e3,
                  static_cast<double>(from.bytes()) / seconds / 1e9);
    return text;
}

std::string there_and_back(const ddp::Tensor& here, const ddp::Tensor& there) {
    return measure(here, there) + "     " + measure(there, here) + "     ";
}

void print_row(std::size_t bytes, const ddp::Device& target) {
    const ddp::Shape shape{static_cast<std::int64_t>(bytes / sizeof(float))};
    const auto there = ddp::zeros(shape, {.device = target});
    std::string row = there_and_back(ddp::ones(shape), there);
    if (target.type == ddp::DeviceType::cuda) {
        row += there_and_back(ddp::ones(shape).pin_memory(), there);
    } else {
        for (int column = 0; column < 2; ++column) row += "        -       -     ";
    }
    const bool large = bytes >= std::size_t{1} << 20U;
    const std::string size =
        large ? std::to_string(bytes >> 20U) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
    row.erase(row.find_last_not_of(' ') + 1);
    std::printf("%-9s%s\n", size.c_str(), row.c_str());
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const Options options = parse_options(argc, argv);
        const ddp::Device target = choose_target(options.device);
        show_moves(target);
        std::cout << "is moving expensive? the copy alone, into memory that is there; ms and GB/s\n"
                  << std::flush;
        const std::string name = to_string(target);
        std::printf("%-9s%17s     %17s     %17s     %17s\n", "", ("to " + name).c_str(), "back",
                    ("pinned, to " + name).c_str(), "pinned, back");
        for (std::size_t bytes = 1024; bytes <= options.max_bytes; bytes *= 4) {
            print_row(bytes, target);
        }
    });
}
