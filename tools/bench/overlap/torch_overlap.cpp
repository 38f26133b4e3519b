// The LibTorch contestant of overlap.sh; torch_overlap.py is the same program in Python. Rank 0
// prints the median milliseconds of a step with averaging, of one without after which the ranks
// meet, and of one without; on a GPU then the MiB of its memory that are taken, of which torch has
// kept the last number.
// usage: ddp-torch-overlap WIDTH LAYERS BATCH BLOCKS buckets|one-bucket [cuda]
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/torch.hpp>

#include <torch/torch.h>
#ifdef DDP_TORCH_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int steps_in_block = 4;  // the first of each is not counted

torch::nn::Sequential make_net(std::int64_t width, int layers) {
    torch::nn::Sequential net;
    for (int i = 0; i < layers; ++i) {
        net->push_back(torch::nn::Linear(width, width));
        net->push_back(torch::nn::ReLU());
    }
    return net;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// What is on the GPU is done. Nothing of the sort on the CPU.
void finish([[maybe_unused]] const torch::Device& device) {
#ifdef DDP_TORCH_HAS_CUDA
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
#endif
}

std::string memory_of([[maybe_unused]] const torch::Device& device) {
#ifdef DDP_TORCH_HAS_CUDA
    if (device.is_cuda()) {
        std::size_t free = 0, total = 0;
        if (cudaMemGetInfo(&free, &total) != cudaSuccess) return " unknown";
        const auto kept =
            c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).reserved_bytes[0].peak;
        constexpr double mebi = 1 << 20;
        return " " + std::to_string(static_cast<double>(total - free) / mebi) + " " +
               std::to_string(static_cast<double>(kept) / mebi);
    }
#endif
    return "";
}

// Runs a block of steps and keeps the milliseconds of all but the first.
void time_block(const auto& step, std::vector<double>& milliseconds) {
    for (int i = 0; i < steps_in_block; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        step();
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - begin;
        if (i > 0) milliseconds.push_back(time.count());
    }
}

void measure(std::int64_t width, int layers, std::int64_t batch, int blocks, bool one_bucket,
             bool on_gpu) {
    auto group =
        ddp::init_process_group({.backend = on_gpu ? ddp::Backend::nccl : ddp::Backend::automatic});
    const torch::Device device = on_gpu ? ddp::libtorch::torch_device(group.device()) : torch::kCPU;
    torch::manual_seed(group.rank());
    auto net = make_net(width, layers);
    net->to(device);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-3));
    ddp::libtorch::DistributedDataParallelOptions options;
    if (one_bucket) options.reducer.bucket_cap_mb = options.reducer.first_bucket_mb = 1e6;
    ddp::libtorch::DistributedDataParallel model{net, group, options};
    const auto input = torch::randn({batch, width}, device);
    const auto target = torch::randn({batch, width}, device);
    const auto step = [&] {
        for (torch::Tensor& value : net->parameters()) {
            if (value.grad().defined()) value.mutable_grad().zero_();
        }
        torch::mse_loss(model->forward(input), target).backward();
        optimizer.step();
        finish(device);
    };
    for (int i = 0; i < steps_in_block; ++i) step();
    const auto meeting_step = [&] {
        step();
        group.barrier().wait();
    };
    std::vector<double> averaging;
    std::vector<double> meeting;
    std::vector<double> local;
    for (int block = 0; block < blocks; ++block) {
        {
            const auto guard = model.no_sync();
            time_block(step, local);
            time_block(meeting_step, meeting);
        }
        time_block(step, averaging);
    }
    if (group.rank() != 0) return;
    std::printf("%.4f %.4f %.4f%s\n", median(averaging), median(meeting), median(local),
                memory_of(device).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    const bool on_gpu = argc == 7 && std::string_view(argv[6]) == "cuda";
    const std::string_view mode = argc == 6 || on_gpu ? argv[5] : "";
    if (mode != "buckets" && mode != "one-bucket") {
        std::fputs("usage: ddp-torch-overlap WIDTH LAYERS BATCH BLOCKS buckets|one-bucket [cuda]\n",
                   stderr);
        return 2;
    }
    return ddp::run_worker([&] {
        measure(std::atoll(argv[1]), std::atoi(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]),
                mode == "one-bucket", on_gpu);
    });
}
