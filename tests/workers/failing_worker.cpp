// A worker that fails inside run_worker, or makes others fail. The first word says how; those who
// do not fail say that they are ready and wait.
//
//   throw, abort         rank 1 does so
//   blame                rank 0 ends by an error that is due to rank 1
//   join                 nobody fails: all have joined the job when they are ready
//   missing_gradient     rank 1's backward lacks a gradient, as all find in wait()
//   missing_gradient_stays   the same, but rank 1 does not end
//   hang                 rank 1 does not come to an all-reduce of the others
#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/run_worker.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Ranks have just met when it begins.
constexpr std::chrono::seconds time_to_hang{5};

[[noreturn]] void wait_to_be_stopped() {
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) ::pause();
}

void train_without_a_gradient(bool stays) {
    auto group = ddp::init_process_group();
    std::array<std::array<float, 4>, 2> values{};
    std::array<std::array<float, 4>, 2> gradients{};
    std::vector<ddp::Parameter> parameters;
    for (std::size_t i = 0; i < values.size(); ++i) {
        parameters.push_back(
            {"layer" + std::to_string(i), std::span(values[i]), std::span(gradients[i])});
    }
    ddp::Reducer reducer(parameters, group);
    reducer.mark_ready(1);
    if (group.rank() != 1) reducer.mark_ready(0);
    try {
        if (reducer.wait()) throw ddp::Error("nobody has noticed");
    } catch (const ddp::UsageError&) {
        if (stays && group.rank() == 1) wait_to_be_stopped();
        throw;
    }
}

void hang() {
    auto group = ddp::init_process_group();
    auto impatient = ddp::init_process_group({.timeout = time_to_hang});
    if (group.rank() == 1) wait_to_be_stopped();
    impatient.all_reduce(1);
}

void fail(std::string_view how, std::string_view rank) {
    if (how == "missing_gradient") return train_without_a_gradient(false);
    if (how == "missing_gradient_stays") return train_without_a_gradient(true);
    if (how == "hang") return hang();
    if (how == "init") {  // and no failure
        const auto group = ddp::init_process_group();
        return;
    }
    if (how == "join") {
        auto group = ddp::init_process_group();
        wait_to_be_stopped();
    }
    if (how == "blame" && rank == "0") throw ddp::TimeoutError("rank 1 does not come", 1);
    if (how == "abort" && rank == "1") std::abort();
    if (how == "throw" && rank == "1") throw ddp::UsageError("there is no data");
    wait_to_be_stopped();
}

}  // namespace

int main(int argc, char** argv) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const std::string_view how = argc > 1 ? argv[1] : "throw";
    const char* const rank = std::getenv("RANK");
    return ddp::run_worker([&] { fail(how, rank != nullptr ? rank : ""); });
}
