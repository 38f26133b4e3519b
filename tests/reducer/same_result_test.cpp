// Whatever the options and the number of ranks, gradients are those of one process that sees the
// whole batch; exactly, since they are integers in floats.
#include <ddp/reducer.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::add_gradient;
using ddp::testing::gradient_is;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;

const std::vector<std::int64_t> sizes{5, 700, 0, 33, 3000};

// Divisible by every number of ranks here, so that averages are exact.
float contribution(std::size_t rank, std::size_t step, std::size_t parameter) {
    return static_cast<float>(12 * ((rank * 7 + step * 3 + parameter * 5) % 11));
}

struct Case {
    const char* name;
    bool views = true;
    double cap_mb = 0.004;
    bool static_graph = false;
    bool find_unused = false;
    int hook = 0;  // 0 none, 1 all_reduce, 2 fp16, 3 bf16
    std::size_t accumulated = 1;
    bool forward_order = false;  // gradients come first parameter first
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

ReducerOptions options_of(const Case& c) {
    ReducerOptions options{.bucket_cap_mb = c.cap_mb,
                           .first_bucket_mb = 0.001,
                           .gradient_as_bucket_view = c.views,
                           .find_unused_parameters = c.find_unused,
                           .static_graph = c.static_graph,
                           .checksum_steps = 1};
    if (c.hook == 1) options.comm_hook = all_reduce_hook();
    if (c.hook == 2) options.comm_hook = fp16_compress_hook();
    if (c.hook == 3) options.comm_hook = bf16_compress_hook();
    return options;
}

void backward(ToyNet& net, Reducer& reducer, const Case& c, std::size_t rank, std::size_t step) {
    reducer.start_backward();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::size_t parameter = c.forward_order ? i : sizes.size() - 1 - i;
        add_gradient(net.parameters(), parameter, contribution(rank, step, parameter));
        reducer.mark_ready(parameter);
    }
}

float expected(std::size_t ranks, std::size_t first_step, std::size_t steps,
               std::size_t parameter) {
    float sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t step = first_step; step < first_step + steps; ++step) {
            sum += contribution(rank, step, parameter);
        }
    }
    return sum / static_cast<float>(ranks);
}

class SameResult : public ::testing::TestWithParam<Case> {};

TEST_P(SameResult, AsOneProcessWithTheWholeBatch) {
    const Case c = GetParam();
    for (const int ranks : {1, 2, 3, 4}) {
        run_ranks(ranks, [&](ProcessGroup& group) {
            ToyNet net(sizes);
            Reducer reducer(net.parameters(), group, options_of(c));
            const auto rank = static_cast<std::size_t>(group.rank());
            for (std::size_t step = 0; step < 4 * c.accumulated; step += c.accumulated) {
                net.zero_grad();
                for (std::size_t i = 0; i + 1 < c.accumulated; ++i) {
                    const auto guard = reducer.no_sync();
                    backward(net, reducer, c, rank, step + i);
                    EXPECT_FALSE(reducer.wait());
                }
                backward(net, reducer, c, rank, step + c.accumulated - 1);
                EXPECT_TRUE(reducer.wait());
                for (std::size_t p = 0; p < sizes.size(); ++p) {
                    EXPECT_TRUE(gradient_is(
                        net.parameters(), p,
                        expected(static_cast<std::size_t>(group.size()), step, c.accumulated, p)))
                        << "step " << step << " parameter " << p;
                }
            }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(
    Options, SameResult,
    ::testing::Values(Case{.name = "Views"}, Case{.name = "Copies", .views = false},
                      Case{.name = "OneBucket", .cap_mb = 25},
                      Case{.name = "OtherOrder", .forward_order = true},
                      Case{.name = "OtherOrderCopies", .views = false, .forward_order = true},
                      Case{.name = "StaticGraph", .static_graph = true},
                      Case{.name = "StaticGraphCopies", .views = false, .static_graph = true},
                      Case{.name = "FindUnused", .find_unused = true},
                      Case{.name = "FindUnusedCopies", .views = false, .find_unused = true},
                      Case{.name = "AllReduceHook", .hook = 1}, Case{.name = "Fp16Hook", .hook = 2},
                      Case{.name = "Bf16Hook", .hook = 3},
                      Case{.name = "Bf16HookCopies", .views = false, .hook = 3},
                      Case{.name = "Accumulated", .accumulated = 3},
                      Case{.name = "AccumulatedCopies", .views = false, .accumulated = 3},
                      Case{.name = "AccumulatedFindUnused", .find_unused = true, .accumulated = 2},
                      Case{.name = "AccumulatedStatic", .static_graph = true, .accumulated = 2}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
