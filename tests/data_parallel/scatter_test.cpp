// How batches are cut and joined: torch's table, what is copied and what is shared, what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddp/error.hpp>
#include <ddp/scatter.hpp>
#include <ddp/tensor_functions.hpp>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data_parallel/cpu_devices.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Sizes = std::vector<std::int64_t>;

// [rows, 2], counting from 0.
Tensor counted(std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(2 * rows));
    std::iota(values.begin(), values.end(), 0.0F);
    return tensor(values, {rows, 2});
}

Sizes scattered(std::int64_t rows, std::size_t devices) {
    Sizes sizes;
    for (const Tensor& part : scatter(counted(rows), first_cpus(devices))) {
        sizes.push_back(part.shape()[0]);
    }
    return sizes;
}

std::string message_of(const auto& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no UsageError";
}

class Scatter : public ::testing::Test {
protected:
    CpuDevices cpus_{8};
};
using Gather = Scatter;

TEST_F(Scatter, CutsAsTheTutorialsTable) {
    const std::vector<Sizes> of_30{{30},
                                   {15, 15},
                                   {10, 10, 10},
                                   {8, 8, 8, 6},
                                   {6, 6, 6, 6, 6},
                                   {5, 5, 5, 5, 5, 5},
                                   {5, 5, 5, 5, 5, 5},
                                   {4, 4, 4, 4, 4, 4, 4, 2}};
    const std::vector<Sizes> of_10{{10},
                                   {5, 5},
                                   {4, 4, 2},
                                   {3, 3, 3, 1},
                                   {2, 2, 2, 2, 2},
                                   {2, 2, 2, 2, 2},
                                   {2, 2, 2, 2, 2},
                                   {2, 2, 2, 2, 2}};
    for (std::size_t devices = 1; devices <= 8; ++devices) {
        EXPECT_EQ(scattered(30, devices), of_30[devices - 1]);
        EXPECT_EQ(scattered(10, devices), of_10[devices - 1]);
    }
}

TEST_F(Scatter, GivesNoRowsToTheFirstDeviceAlone) { EXPECT_EQ(scattered(0, 8), Sizes{0}); }

TEST_F(Scatter, PutsEachPieceOnItsDeviceAndSharesWhatStays) {
    const Tensor batch = counted(5);
    const std::vector<Device> devices{cpu(3), cpu(0)};
    const auto parts = scatter(batch, devices);
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(parts[0].device(), cpu(3));
    EXPECT_TRUE(equal(parts[0], tensor({0.F, 1.F, 2.F, 3.F, 4.F, 5.F}).view({3, 2})));
    EXPECT_NE(parts[0].data(), batch.data());
    EXPECT_EQ(parts[1].device(), cpu(0));
    EXPECT_EQ(parts[1].data(), batch.as<float>().data() + 6);
}

TEST_F(Scatter, CutsWhatTuplesAndVectorsHoldAndCopiesTheRest) {
    const std::vector<Tensor> list{counted(4), counted(4)};
    const auto parts =
        scatter(std::tuple(counted(4), std::pair(list, std::string("x")), 7), first_cpus(2));
    ASSERT_EQ(parts.size(), 2U);
    const auto& [first, pair, number] = parts[1];
    EXPECT_TRUE(equal(first, tensor({4.F, 5.F, 6.F, 7.F}).view({2, 2})));
    EXPECT_EQ(first.device(), cpu(1));
    ASSERT_EQ(pair.first.size(), 2U);
    EXPECT_TRUE(equal(pair.first[1], first));
    EXPECT_EQ(pair.first[1].device(), cpu(1));
    EXPECT_EQ(pair.second, "x");
    EXPECT_EQ(number, 7);
}

TEST_F(Scatter, CopiesWhatHasNoTensorForEachDevice) {
    EXPECT_THAT(scatter(7, first_cpus(3)), ElementsAre(7, 7, 7));
    EXPECT_EQ(scatter(std::tuple<>{}, first_cpus(3)).size(), 1U);
}

TEST_F(Scatter, RefusesWhatHasNoRowsAndRowsThatDiffer) {
    EXPECT_THAT(message_of([] { scatter(zeros({}), first_cpus(2)); }),
                HasSubstr("a tensor without dimensions has no rows to cut"));
    EXPECT_THAT(message_of([] { scatter(std::pair(counted(30), counted(29)), first_cpus(2)); }),
                HasSubstr("inputs of shapes [30, 2] and [29, 2] are not cut alike"));
    EXPECT_THAT(message_of([] { scatter(counted(30), {}); }), HasSubstr("no device is given"));
}

TEST_F(Gather, JoinsWhatScatterCut) {
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
        for (std::size_t devices = 1; devices <= 8; ++devices) {
            const auto parts = scatter(counted(rows), first_cpus(devices));
            const Tensor joined = gather(parts, cpu(5));
            EXPECT_EQ(joined.device(), cpu(5));
            EXPECT_TRUE(equal(joined, counted(rows))) << rows << " rows, " << devices;
        }
    }
}

TEST_F(Gather, ReturnsASinglePartAsItIs) {
    const Tensor part = counted(3);
    EXPECT_EQ(gather(std::vector{part}, cpu(0)).data(), part.data());
}

TEST_F(Gather, MakesAVectorOfScalars) {
    const auto scalars = std::vector{tensor({3.F}).view(Shape{}), tensor({4.F}).view(Shape{})};
    EXPECT_TRUE(equal(gather(scalars, cpu(1)), tensor({3.F, 4.F})));
    EXPECT_TRUE(equal(gather(std::vector{scalars[1]}, cpu(0)), tensor({4.F})));
}

TEST_F(Gather, JoinsMemberByMember) {
    using Output = std::tuple<Tensor, double, std::vector<Tensor>>;
    const std::vector<Output> outputs{{counted(1), 0.5, {counted(2)}},
                                      {counted(2), 1.5, {counted(1)}}};
    const auto [joined, numbers, list] = gather(outputs, cpu(2));
    EXPECT_EQ(joined.shape(), (Shape{3, 2}));
    EXPECT_EQ(joined.device(), cpu(2));
    EXPECT_THAT(numbers, ElementsAre(0.5, 1.5));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].shape(), (Shape{3, 2}));
}

TEST_F(Gather, RefusesPiecesThatDoNotFit) {
    EXPECT_THAT(message_of([] {
                    gather(std::vector{zeros({10, 2}), zeros({10, 3})}, cpu(0));
                }),
                HasSubstr("outputs [10, 2] float32 and [10, 3] float32 of two replicas"));
    EXPECT_THAT(message_of([] {
                    gather(std::vector{zeros({2}), zeros({})}, cpu(0));
                }),
                HasSubstr("do not fit together"));
    EXPECT_THAT(message_of([] { gather(std::vector<Tensor>{}, cpu(0)); }),
                HasSubstr("nothing to join"));
    using List = std::vector<Tensor>;
    EXPECT_THAT(message_of([] {
                    gather(std::vector<List>{{zeros({1})}, {zeros({1}), zeros({1})}}, cpu(0));
                }),
                HasSubstr("replicas returned 1 and 2 tensors"));
}

}  // namespace
