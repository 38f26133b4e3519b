// Every collective on every dtype and world size, with inputs whose results are exact. One suite
// over backends: a new backend joins the list of worlds.
#include <ddp/testing.hpp>

#include "backends/gloo/make_gloo.hpp"
#include "backends/shm/region/region_layout.hpp"
#include "process_group/worlds.hpp"
#include "support/exact_inputs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

namespace {

using namespace ddp;
using namespace std::chrono_literals;
using ddp::testing::exact_class;
using ddp::testing::exact_classes;
using ddp::testing::exact_input;
using ddp::testing::exact_value;
using ddp::testing::exact_value_of_class;
using ddp::testing::RankReporter;
using ddp::testing::run_joining_ranks;
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

// Of all ranks' elements at an index.
template <class T>
class Expected {
public:
    Expected(ReduceOp op, int ranks) {
        for (std::size_t which = 0; which < exact_classes; ++which) {
            T result = exact_value_of_class<T>(0, which);
            for (int rank = 1; rank < ranks; ++rank) {
                result = combine(op, result, exact_value_of_class<T>(rank, which));
            }
            values_[which] =
                op == ReduceOp::avg ? static_cast<T>(result / static_cast<T>(ranks)) : result;
        }
    }
    T operator()(std::size_t index) const { return values_[exact_class(index)]; }

private:
    std::array<T, exact_classes> values_;
};

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

// On one host.
std::vector<Backend> backends_for(int ranks) {
    std::vector<Backend> all{Backend::shm};
    if (!gloo::refusal_of_build().empty()) return all;
    if (ranks <= 4) all.push_back(Backend::gloo);
    if (ranks == 4) all.push_back(Backend::hierarchical);
    return all;
}

// The groups of one host's ranks are made by the same ranks, one after the other.
template <class Body>
void on_every_world(const Body& body) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        run_joining_ranks(ranks, [&](RankReporter&, const std::function<ProcessGroup()>&) {
            for (const Backend backend : backends_for(ranks)) {
                SCOPED_TRACE(to_string(backend));
                ProcessGroup group = init_process_group({.backend = backend, .timeout = 45s});
                body(group);
            }
        });
    }
    if (!gloo::refusal_of_build().empty()) return;
    for (const std::vector<int>& hosts : several_hosts()) {
        SCOPED_TRACE("on hosts of " + ::testing::PrintToString(hosts) + " ranks");
        run_ranks(std::accumulate(hosts.begin(), hosts.end(), 0), body,
                  {.init = {.backend = Backend::hierarchical}, .hosts = hosts});
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
    const Expected<T> wanted(op, group.size());
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
            const Expected<T> of_all(ReduceOp::sum, group.size());
            const auto wanted = [&](std::size_t i) { return of_all(me * size + i); };
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
