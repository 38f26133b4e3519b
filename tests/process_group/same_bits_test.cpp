// The promise that every reduction adds in the order of the balanced tree over ranks: the bits of
// each path, in each kind of memory and with each tuning, are those of a tree computed here, on
// inputs whose rounding depends on the order.
#include "backends/gloo/make_gloo.hpp"
#include "backends/hierarchical/host_layout.hpp"
#include "backends/reduce_model.hpp"
#include "backends/shm/region/region_layout.hpp"
#include "process_group/worlds.hpp"

#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using namespace std::chrono_literals;

std::size_t elements = 10'007;

template <class T>
T input_at(int rank, std::size_t index) {
    const std::size_t mixed = (index + 1) * 0x9e3779b97f4a7c15 >> 40;
    const float sign = (mixed + static_cast<std::size_t>(rank)) % 3 == 0 ? -1.0F : 1.0F;
    return T(sign * (1.0F + static_cast<float>(mixed % 10'000)) / static_cast<float>(3 + rank * 7));
}

double factor_of(int rank) { return 1.0 / (3 + rank); }

template <class T>
std::vector<T> reduced_in_a_tree(ReduceOp::Kind op, int ranks) {
    std::vector<double> factors;
    for (int rank = 0; rank < ranks; ++rank) factors.push_back(factor_of(rank));
    std::vector<T> result(elements);
    std::vector<T> column(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < elements; ++i) {
        for (int rank = 0; rank < ranks; ++rank) {
            column[static_cast<std::size_t>(rank)] = input_at<T>(rank, i);
        }
        result[i] = reduce_test::reduced(op, column, factors);
    }
    return result;
}

// A rank is one of one world, and of one number of elements.
template <class T>
const std::vector<T>& tree(ReduceOp::Kind op, int ranks) {
    static std::map<ReduceOp::Kind, std::vector<T>> known;
    const auto found = known.find(op);
    if (found != known.end()) return found->second;
    return known.emplace(op, reduced_in_a_tree<T>(op, ranks)).first->second;
}

// Where the input and the output of a rank lie.
template <class T>
struct Memory {
    std::span<T> input, output;
};

template <class T>
void fill(ProcessGroup& group, const Memory<T>& memory) {
    for (std::size_t i = 0; i < elements; ++i) memory.input[i] = input_at<T>(group.rank(), i);
}

template <class T>
std::size_t count_other_bits(std::span<const T> got, const T* wanted) {
    if (std::memcmp(got.data(), wanted, got.size_bytes()) == 0) return 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        count += std::memcmp(&got[i], &wanted[i], sizeof(T)) != 0;
    }
    return count;
}

template <class T>
void check(ProcessGroup& group, ReduceOp op, const std::vector<T>& wanted,
           const Memory<T>& memory) {
    const auto expect = [&](std::span<const T> got, std::size_t first, const char* what) {
        EXPECT_EQ(count_other_bits(got, wanted.data() + first), 0U) << what << to_string(op);
    };
    fill(group, memory);
    group.all_reduce(memory.input, memory.output, op).wait();
    expect(memory.output, 0, "all_reduce ");
    const Root root{group.size() - 1};
    group.reduce(memory.input, memory.output, root, op).wait();
    if (group.rank() == root.rank) expect(memory.output, 0, "reduce ");
    const std::size_t part = elements / static_cast<std::size_t>(group.size());
    const std::size_t own = part * static_cast<std::size_t>(group.rank());
    const auto whole = memory.input.subspan(0, part * static_cast<std::size_t>(group.size()));
    const auto mine = memory.output.subspan(0, part);
    group.reduce_scatter(whole, mine, op).wait();
    expect(mine, own, "reduce_scatter ");
    // In one phase: most of them in the descriptors, or one more.
    const std::size_t in_lines = shm::inline_bytes / sizeof(T);
    for (const std::size_t few : {std::size_t{7}, in_lines, in_lines + 1}) {
        fill(group, memory);
        group.all_reduce(memory.input.subspan(0, few), op).wait();
        expect(memory.input.subspan(0, few), 0, "all_reduce of few ");
    }
}

template <class T>
void check_all(ProcessGroup& group) {
    std::vector<T> input(elements), output(elements);
    const Tensor shared_input =
        group.allocate(Shape{static_cast<std::int64_t>(elements)}, dtype_of<T>());
    const Tensor shared_output =
        group.allocate(Shape{static_cast<std::int64_t>(elements)}, dtype_of<T>());
    const Memory<T> user{input, output};
    const Memory<T> shared{shared_input.as<T>(), shared_output.as<T>()};
    const ReduceOp premul = ReduceOp::make_premul_sum(factor_of(group.rank()));
    for (const ReduceOp op : {ReduceOp(ReduceOp::sum), ReduceOp(ReduceOp::avg), premul}) {
        const std::vector<T>& wanted = tree<T>(op.kind, group.size());
        check(group, op, wanted, user);
        check(group, op, wanted, shared);
        check(group, op, wanted, group.rank() % 2 == 0 ? user : shared);
    }
    const auto adopted_input = group.adopt(user.input);
    const auto adopted_output = group.adopt(user.output);
    check(group, premul, tree<T>(premul.kind, group.size()), user);
}

template <class T>
class SameBits : public ::testing::Test {};
using Elements = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(SameBits, Elements);

// A group each, of the same ranks.
TYPED_TEST(SameBits, OnEveryPathWithEveryTuning) {
    on_worlds({2, 3, 4, 7}, [](ProcessGroup&) {
        for (const char* const tuning :
             {"", "one_phase_bytes=0,chunk_bytes=4K", "one_phase_bytes=1M,chunk_bytes=1M",
              "streaming_gain_ps=1,chunk_bytes=12K",
              "streaming_gain_ps=1,rotating_bytes=1,chunk_bytes=64K",
              "pipelined_bytes=4K,rotating_bytes=1,rotating_room=32K,chunk_bytes=12K",
              "pipelined_bytes=4K,rotating_bytes=1,rotating_room=1K,chunk_bytes=12K",
              "streaming_output_bytes=1,chunk_bytes=12K", "one_phase_bytes=4K,chunk_bytes=20K",
              "one_phase_bytes=0,chunk_bytes=4K,direct_bytes_min=1,direct_bytes_max=1M,"
              "direct_exchange_bytes_max=1M,direct_reduction_bytes_max=1M"}) {
            SCOPED_TRACE(tuning);
            const ScopedTuning scoped(tuning);
            ProcessGroup group = init_process_group({.timeout = 45s});
            check_all<TypeParam>(group);
        }
    });
}

template <class T>
void check_between_hosts(std::size_t size, const std::vector<int>& hosts) {
    if (!gloo::refusal_of_build().empty()) GTEST_SKIP() << "a build without Gloo";
    SCOPED_TRACE(::testing::PrintToString(hosts));
    run_ranks(std::accumulate(hosts.begin(), hosts.end(), 0),
              [&](ProcessGroup& group) {
                  elements = size;
                  hierarchical::least_column_bytes = 16 << 10;
                  check_all<T>(group);
              },
              {.hosts = hosts});
}

TYPED_TEST(SameBits, BetweenHosts) {
    auto worlds = several_hosts();
    worlds.push_back(std::vector<int>(8, 1));
    for (const std::vector<int>& hosts : worlds) check_between_hosts<TypeParam>(10'007, hosts);
}

// What travels is cut into columns. A test each: sanitized they take minutes together.
TYPED_TEST(SameBits, InColumnsOn2Hosts) { check_between_hosts<TypeParam>(150'001, {2, 2}); }
TYPED_TEST(SameBits, InColumnsOn2UnequalHosts) { check_between_hosts<TypeParam>(150'001, {3, 5}); }
TYPED_TEST(SameBits, InColumnsOn3Hosts) { check_between_hosts<TypeParam>(150'001, {1, 2, 4}); }
TYPED_TEST(SameBits, InColumnsOn4Hosts) { check_between_hosts<TypeParam>(150'001, {2, 1, 1, 1}); }

}  // namespace
