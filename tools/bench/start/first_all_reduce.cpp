// A worker that joins its job, all-reduces 4 bytes, checks them, and ends: how soon a job computes.
// --until=main and --until=group end there: at once, and with the group made. Another argument:
// prints CLOCK_MONOTONIC when it has the sum, in nanoseconds, in a line after that argument.
// Run:  ddp-launch --nproc_per_node=4 ddp-first-all-reduce
#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <chrono>
#include <cstdio>
#include <string_view>

int main(int argc, char** argv) {
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (word == "--until=main") return 0;
    return ddp::run_worker([&] {
        auto group = ddp::init_process_group();
        if (word == "--until=group") return;
        const float sum = group.all_reduce(1.0F);
        if (sum != static_cast<float>(group.size())) throw ddp::Error("the sum is wrong");
        if (word.empty()) return;
        const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
        std::printf("%s %lld\n", argv[1], static_cast<long long>(now.count()));
    });
}
