// Memory of ProcessGroup::allocate: zeroed, aligned, shared however it is used, and longer-lived
// than the group when somebody holds it; refused on every rank when there is not enough.
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

TEST(Allocate, GivesZeroedAlignedMemory) {
    on_worlds({1, 2, 3}, [](ProcessGroup& group) {
        const Tensor tensor = group.allocate(Shape{3, 333}, DType::float32);
        EXPECT_EQ(tensor.numel(), 999U);
        EXPECT_EQ(tensor.dtype(), DType::float32);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 4096, 0U);
        const auto values = tensor.as<float>();
        EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), 999);
        EXPECT_EQ(group.allocate(Shape{0}, DType::int8).numel(), 0U);
    });
}

TEST(Allocate, IsReducedInPlaceAndInParts) {
    on_worlds({1, 2, 4}, [](ProcessGroup& group) {
        const Tensor tensor = group.allocate(Shape{100'000}, DType::float32);
        const auto values = tensor.as<float>();
        std::fill(values.begin(), values.end(), 1.0F);
        group.all_reduce(tensor).wait();
        const auto ranks = static_cast<float>(group.size());
        EXPECT_EQ(std::count(values.begin(), values.end(), ranks), 100'000);
        group.all_reduce(values.subspan(1, 50'001)).wait();
        EXPECT_EQ(std::count(values.begin() + 1, values.begin() + 50'002, ranks * ranks), 50'001);
        EXPECT_EQ(values[0] + values[50'002], 2 * ranks);
    });
}

// Each rank lets go of its own at another time.
TEST(Allocate, OutlivesTheGroupAndLeavesInAnyOrder) {
    const auto body = [](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        Tensor kept;
        {
            ProcessGroup group = join();
            std::vector<Tensor> tensors;
            for (int i = 0; i < 4; ++i) {
                tensors.push_back(group.allocate(Shape{50'000}, DType::int32));
            }
            kept = tensors[static_cast<std::size_t>(group.rank())];
            tensors.erase(tensors.begin() + group.rank());
            tensors.clear();
            const Tensor again = group.allocate(Shape{50'000}, DType::int32);
            std::fill_n(again.as<std::int32_t>().begin(), 50'000, group.rank());
            std::fill_n(kept.as<std::int32_t>().begin(), 50'000, 7);
            group.all_reduce(again).wait();
            if (again.as<std::int32_t>()[49'999] != 3) reporter.failure("a wrong sum");
        }
        const auto values = kept.as<std::int32_t>();
        if (std::count(values.begin(), values.end(), 7) != 50'000) reporter.failure("overwritten");
    };
    run_joining_ranks(3, body);
}

TEST(Allocate, IsRefusedOnEveryRankWhenThereIsNotEnough) {
    // More than any machine has; and so much that the sum over the ranks overflows.
    on_worlds({2, 4}, [](ProcessGroup& group) {
        for (const std::int64_t bytes : {std::int64_t{1} << 50, std::int64_t{1} << 62}) {
            try {
                static_cast<void>(group.allocate(Shape{bytes}, DType::uint8));
                ADD_FAILURE() << "had " << bytes << " bytes";
            } catch (const SystemError& error) {
                EXPECT_THAT(error.what(),
                            HasSubstr("allocate " + std::to_string(bytes) + " bytes on each of " +
                                      std::to_string(group.size()) + " ranks"));
            }
            EXPECT_EQ(group.all_reduce(1), group.size()) << "the group goes on";
        }
    });
}

TEST(Allocate, RefusesAShapeWhoseBytesOverflow) {
    on_worlds({1, 2}, [](ProcessGroup& group) {
        const Shape huge{std::int64_t{1} << 62};
        EXPECT_THROW(static_cast<void>(group.allocate(huge, DType::float64)), SystemError);
        const Shape square{std::int64_t{1} << 33, std::int64_t{1} << 33};
        EXPECT_THROW(static_cast<void>(group.allocate(square, DType::uint8)), SystemError);
        EXPECT_EQ(group.all_reduce(1), group.size()) << "the group goes on";
    });
}

TEST(Allocate, TellsEveryRankWhenTheirSizesDiffer) {
    run_ranks(2, [](ProcessGroup& group) {
        try {
            static_cast<void>(group.allocate(Shape{group.rank() == 0 ? 8 : 9}, DType::uint8));
            ADD_FAILURE() << "went on";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("rank 0 called allocate of 8 uint8, rank 1 called "
                                                "allocate of 9 uint8"));
        }
    });
}

}  // namespace
