// A small training on GPUs that are not there: 30 steps in which the ranks average what they add to
// their weights. Its fault (FAULT, of the stand-in NCCL's) happens in the first attempt only.
// Prints the weights' digest in the end.
#include "standin_cuda/cards.hpp"
#include "support/stand_in_library.hpp"

#include <ddp/ddp.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

int main() {
    ddp::device::use_device_api(&ddp::standin_cuda::lasting_cards(4));
    ::setenv("DDP_NCCL_LIBRARY", ddp::testing::stand_in_path().c_str(), 1);
    return ddp::run_worker([&] {
        const char* const fault = std::getenv("FAULT");
        const bool first = ddp::worker_env().attempt == 0;
        if (fault != nullptr && first) ::setenv("DDP_STAND_IN_FAULTS", fault, 1);
        auto group = ddp::init_process_group({.backend = ddp::Backend::nccl});
        constexpr std::size_t size = 1'000;
        std::vector<float> weights(size, 1.0F);
        const ddp::Tensor memory = group.allocate({size}, ddp::DType::float32, group.device());
        const std::span<float> gradient = memory.as<float>();
        for (int step = 0; step < 30; ++step) {
            for (std::size_t i = 0; i < size; ++i) {
                gradient[i] = weights[i] * static_cast<float>(group.rank() + 1) + 0.25F;
            }
            group.all_reduce(memory.view(), ddp::ReduceOp::avg).wait();
            for (std::size_t i = 0; i < size; ++i) weights[i] -= 0.01F * gradient[i];
        }
        std::uint64_t digest = 0xcbf29ce484222325;
        for (const float weight : weights) {
            digest = (digest ^ std::bit_cast<std::uint32_t>(weight)) * 0x100000001b3;
        }
        std::printf("rank %d digest %llx\n", group.rank(), static_cast<unsigned long long>(digest));
    });
}
