// Random programs over the stand-ins, which take their time where a program says so.
#include "process_group/gpu_program.hpp"
#include "process_group/gpus.hpp"
#include "support/seed_for_ranks.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <chrono>
#include <random>
#include <string>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

constexpr unsigned programs = 15;    // of each world, with and without sharing
constexpr unsigned soak_times = 84;  // 10,000 in four worlds

void run_program(ProcessGroup& group, unsigned seed) {
    std::mt19937 random(~seed);
    const auto some_delay = [&] { return random() % 3 == 0 ? random() % 300 : 0; };
    const ScopedKnob delay("OPERATION_DELAY_US", std::to_string(some_delay()));
    gpus().set_launch_delay(std::chrono::microseconds(some_delay()));
    GpuProgram(group, seed).run();
    gpus().set_launch_delay(0us);
}

// Every other time its groups share NCCL's resources.
void run_programs(unsigned seed) {
    for (const bool share : {false, true}) {
        SCOPED_TRACE(share ? "groups share" : "");
        ::setenv("DDP_NCCL_SHARE", share ? "1" : "0", 1);
        on_worlds({1, 2, 3, 4}, [&](ProcessGroup& group) {
            for (unsigned own = seed; own < seed + programs; ++own) {
                SCOPED_TRACE("program " + std::to_string(own));
                run_program(group, own);
                if (::testing::Test::HasFailure()) return;
            }
        });
    }
}

TEST(GpuPrograms, DoWhatTheModelSaysOrSayWhatIsWrong) { run_programs(seed_for_ranks()); }
TEST(GpuPrograms, SoakDoWhatTheModelSaysOrSayWhatIsWrong) {
    const unsigned seed = seed_for_ranks();
    for (unsigned i = 0; i < soak_times && !HasFailure(); ++i) run_programs(seed + i * programs);
}

}  // namespace
