// Gradients of 16 bits that are reduced in float32, in CPU memory.
#include "reducer/float32_reduction.hpp"

#include "process_group/worlds.hpp"

#include <gmock/gmock.h>

#include <functional>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

TEST(Float32Reduction, AveragesInFloat32AndRoundsOnce) {
    on_worlds({1, 2, 3}, [](ProcessGroup& group) {
        expect_float32_averages<bfloat16>(group, {});
        expect_float32_averages<float16>(group, {});
    });
}

TEST(Float32Reduction, KeepsTheAveragesWhileBucketsAreTuned) {
    on_worlds({2}, [](ProcessGroup& group) {
        expect_float32_averages<bfloat16>(group, {}, 40, autotune);
    });
}

TEST(Float32Reduction, LeavesWhatNobodyUses) {
    on_worlds({1, 3}, [](ProcessGroup& group) {
        expect_unused_gradients_stay<bfloat16>(group, {});
        expect_unused_gradients_stay<float16>(group, {});
    });
}

void expect_refused(const ReducerOptions& options, const std::string& why) {
    on_worlds({2}, [&](ProcessGroup& group) {
        HalfModel<bfloat16> model{Device{}};
        try {
            const Reducer reducer(model.parameters(), group, options);
            ADD_FAILURE() << "is not refused";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr(why));
        }
    });
}

TEST(Float32Reduction, RefusesWhatItExcludes) {
    expect_refused({.gradient_as_bucket_view = true, .reduce_in_float32 = true},
                   "reduce_in_float32 needs gradients that stay where they are");
    expect_refused({.reduce_in_float32 = true, .logical_ranks = 4},
                   "reduce_in_float32 and logical_ranks exclude each other");
}

TEST(Float32Reduction, IsTheSameOnAllRanks) {
    on_worlds({2}, [](ProcessGroup& group) {
        HalfModel<bfloat16> model{Device{}};
        EXPECT_THROW(Reducer(model.parameters(), group, {.reduce_in_float32 = group.rank() == 1}),
                     UsageError);
    });
}

}  // namespace
