// A reducer's averages of gradients in a GPU's memory, by every way that they take. On any GPU, or
// what stands in for one.
#pragma once

#include "reducer/gpu_model.hpp"

#include <ddp/comm_hook.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace ddp::testing {

// As views and in copies; with hooks; on streams of the user's. For 1, 2 or 4 ranks: what NCCL
// makes of a third is rounded.
inline void expect_averages(ProcessGroup& group) {
    const auto own = static_cast<float>(2 * (group.rank() + 1));
    const auto average = static_cast<float>(group.size() + 1);
    for (const bool views : {true, false}) {
        for (const CommHook& hook :
             {CommHook{}, all_reduce_hook(), fp16_compress_hook(), bf16_compress_hook()}) {
            GpuModel model(group, {1'000, 1, 77, 300'000});
            const GpuStream a, b, optimiser;
            const std::array<Stream, 2> streams{a, b};
            Reducer reducer(model.parameters(), group,
                            {.bucket_cap_mb = 0.1,
                             .first_bucket_mb = 0.01,
                             .gradient_as_bucket_view = views,
                             .comm_hook = hook,
                             .time_on_gpu = views});
            for (int step = 1; step <= 3; ++step) {
                const auto factor = static_cast<float>(step);
                for (const std::size_t p : {3U, 2U, 1U, 0U}) {
                    model.set_gradient(p, own * factor, streams[p % 2]);
                    reducer.mark_ready(p, streams[p % 2]);
                }
                EXPECT_TRUE(reducer.wait(optimiser));
                const StepStatistics& statistics = reducer.statistics();
                EXPECT_EQ(statistics.communication.count() > 0, views);
                for (std::size_t p = 0; p < 4; ++p) {
                    EXPECT_TRUE(all_are(model.gradient(p, optimiser), average * factor))
                        << "parameter " << p << ", step " << step;
                }
            }
        }
    }
}

}  // namespace ddp::testing
