// Every collective on every dtype and world size, with inputs whose results are exact. One suite
// over backends: a new backend joins the list of worlds.
#include <ddp/testing.hpp>

#include "backends/gloo/make_gloo.hpp"
#include "backends/shm/region/region_layout.hpp"
#include "process_group/worlds.hpp"
#include "support/exact_inputs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::exact_input;
using ddp::testing::exact_value;
using ddp::testing::run_ranks;
using ddp::testing::several_hosts;

// Nothing; one; a few, unaligned; what travels in the shm backend's descriptors, and one more; what
// goes in one phase, of four bytes; a chunk with a rest; and more than two of its largest chunks,
// whatever the element.
template <class T>
std::vector<std::size_t> sizes() {
    const std::size_t in_lines = shm::inline_bytes / sizeof(T),
                      chunks = (2 * 512 * 1024) / sizeof(T);
    return {0, 1, 13, in_lines, in_lines + 1, 2048, 4099, chunks + 77};
}

template <class T>
T combine(ReduceOp op, T a, T b) {
    switch (op.kind) {
        case ReduceOp::sum:
        case ReduceOp::avg:
            return static_cast<T>(a + b);
        case ReduceOp::min:
            return std::min(a, b);
        case ReduceOp::max:
            return std::max(a, b);
        case ReduceOp::product:
            return static_cast<T>(a * b);
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
        case ReduceOp::premul_sum:
            break;
    }
    return a;
}

template <class T>
T expected(ReduceOp op, int ranks, std::size_t index) {
    T result = exact_value<T>(0, index);
    for (int rank = 1; rank < ranks; ++rank) {
        result = combine(op, result, exact_value<T>(rank, index));
    }
    return op == ReduceOp::avg ? static_cast<T>(result / static_cast<T>(ranks)) : result;
}

template <class T, class Wanted>
std::size_t count_wrong(const std::vector<T>& got, const Wanted& wanted) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != wanted(i);
    return wrong;
}

template <class T>
class Collectives : public ::testing::Test {};
using Elements = ::testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Collectives, Elements);

struct World {
    Backend backend;
    int ranks;
    std::vector<int> hosts = {};
};

std::vector<World> worlds() {
    std::vector<World> all;
    for (const int ranks : {1, 2, 3, 4, 7}) all.push_back({Backend::shm, ranks});
    if (!gloo::refusal_of_build().empty()) return all;
    for (const int ranks : {1, 2, 3, 4}) all.push_back({Backend::gloo, ranks});
    all.push_back({Backend::hierarchical, 4});
    for (const std::vector<int>& hosts : several_hosts()) {
        const int ranks = std::accumulate(hosts.begin(), hosts.end(), 0);
        all.push_back({Backend::hierarchical, ranks, hosts});
    }
    return all;
}

template <class Body>
void on_every_world(const Body& body) {
    for (const World& world : worlds()) {
        SCOPED_TRACE(std::to_string(world.ranks) + " ranks over " + to_string(world.backend) +
                     " on " + ::testing::PrintToString(world.hosts));
        run_ranks(world.ranks, body, {.init = {.backend = world.backend}, .hosts = world.hosts});
    }
}

template <class T>
void check_all_reduce(ProcessGroup& group, std::size_t size, ReduceOp op) {
    auto in_place = exact_input<T>(group.rank(), size);
    auto input = in_place;
    const auto before = input;
    std::vector<T> output(size, T{99});
    group.all_reduce(in_place, op).wait();
    group.all_reduce(input, output, op).wait();
    const auto wanted = [&](std::size_t i) { return expected<T>(op, group.size(), i); };
    EXPECT_EQ(count_wrong(in_place, wanted), 0U) << size << to_string(op);
    EXPECT_TRUE(output == in_place) << size << to_string(op);
    EXPECT_TRUE(input == before) << size << to_string(op);
}

TYPED_TEST(Collectives, AllReduceGivesEachRankTheReduction) {
    using T = TypeParam;
    on_every_world([](ProcessGroup& group) {
        for (const std::size_t size : sizes<T>()) {
            check_all_reduce<T>(group, size, ReduceOp::sum);
            if (size > 5000) continue;  // the way of the data is the same for all of them
            for (const ReduceOp op :
                 {ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
                check_all_reduce<T>(group, size, op);
            }
        }
    });
}

TYPED_TEST(Collectives, BroadcastCopiesTheRoots) {
    using T = TypeParam;
    on_every_world([](ProcessGroup& group) {
        for (const std::size_t size : sizes<T>()) {
            for (int root = 0; root < group.size(); ++root) {
                auto tensor = exact_input<T>(group.rank(), size);
                group.broadcast(tensor, Root{root}).wait();
                EXPECT_EQ(tensor, exact_input<T>(root, size)) << size << " from " << root;
            }
        }
    });
}

TYPED_TEST(Collectives, AllGatherOrdersByRank) {
    using T = TypeParam;
    on_every_world([](ProcessGroup& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        for (const std::size_t size : sizes<T>()) {
            auto input = exact_input<T>(group.rank(), size);
            std::vector<T> output(size * ranks);
            group.all_gather(input, output).wait();
            const auto wanted = [&](std::size_t i) {
                return exact_value<T>(static_cast<int>(i / size), i % size);
            };
            EXPECT_EQ(count_wrong(output, wanted), 0U) << size;
            std::vector<T> in_place(size * ranks);
            const auto own =
                std::span<T>(in_place).subspan(size * static_cast<std::size_t>(group.rank()), size);
            std::copy(input.begin(), input.end(), own.begin());
            group.all_gather(own, in_place).wait();
            EXPECT_EQ(in_place, output) << size << " in place";
        }
    });
}

TYPED_TEST(Collectives, ReduceScatterGivesEachRankItsPart) {
    using T = TypeParam;
    on_every_world([](ProcessGroup& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        const auto me = static_cast<std::size_t>(group.rank());
        for (const std::size_t size : sizes<T>()) {
            auto input = exact_input<T>(group.rank(), size * ranks);
            std::vector<T> output(size);
            group.reduce_scatter(input, output, ReduceOp::sum).wait();
            const auto wanted = [&](std::size_t i) {
                return expected<T>(ReduceOp::sum, group.size(), me * size + i);
            };
            EXPECT_EQ(count_wrong(output, wanted), 0U) << size;
            const auto own = std::span<T>(input).subspan(me * size, size);
            group.reduce_scatter(input, own, ReduceOp::sum).wait();
            EXPECT_EQ(std::vector<T>(own.begin(), own.end()), output) << size << " in place";
        }
    });
}

TEST(ProcessGroup, ReducesOneNumberARank) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_EQ(group.all_reduce(group.rank() + 1), 6);
        EXPECT_EQ(group.all_reduce(static_cast<double>(group.rank()), ReduceOp::avg), 1.0);
        EXPECT_EQ(group.all_reduce(std::int64_t{group.rank()}, ReduceOp::max), 2);
    });
}

TEST(ProcessGroup, GivesTheSameBitsOnEveryRankInEveryRun) {
    const auto digest = [](ProcessGroup& group) {
        std::vector<float> values(100'003);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] =
                1.0F / static_cast<float>(1 + i * 7 + static_cast<std::size_t>(group.rank()) * 13);
        }
        group.all_reduce(values).wait();
        std::uint64_t hash = 0xcbf29ce484222325;
        for (const float value : values) {
            hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
        }
        return static_cast<std::int64_t>(hash);
    };
    run_ranks(7, [&](ProcessGroup& group) {
        const std::int64_t first = digest(group);
        EXPECT_EQ(group.all_reduce(first, ReduceOp::min), first);
        EXPECT_EQ(group.all_reduce(first, ReduceOp::max), first);
        EXPECT_EQ(digest(group), first);
    });
}

TEST(ProcessGroup, WorksOnUnalignedMemory) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<std::uint8_t> memory(40'001);
        const auto rank = static_cast<float>(group.rank());
        for (std::size_t i = 0; i < 10'000; ++i) std::memcpy(&memory[1 + 4 * i], &rank, 4);
        group.all_reduce(TensorView(memory.data() + 1, Shape{10'000}, DType::float32)).wait();
        float last = 0;
        std::memcpy(&last, &memory[39'997], 4);
        EXPECT_EQ(last, 1.0F);
    });
}

TEST(ProcessGroup, RunsMoreRanksThanCores) {
    run_ranks(16, [](ProcessGroup& group) {
        for (int i = 0; i < 20; ++i) EXPECT_EQ(group.all_reduce(1), 16);
    });
}

}  // namespace
