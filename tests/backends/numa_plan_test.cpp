// The phases that docs/design/numa.md plans for several memory nodes, on made-up topologies: the
// bits of the balanced tree over all ranks, and how many bytes cross between nodes.
#include "backends/hierarchical/host_layout.hpp"
#include "backends/reduction/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace ddp::hierarchical;
using ddp::backends::reduce;

using Vector = std::vector<float>;

struct Range {
    std::size_t first, count;
};

Range share_of(const Range& whole, std::size_t number, std::size_t shares) {
    const std::size_t begin = whole.count * number / shares;
    return {whole.first + begin, whole.count * (number + 1) / shares - begin};
}

void add(const std::vector<const float*>& inputs, float* output, std::size_t count) {
    std::vector<const std::byte*> from;
    for (const float* input : inputs) from.push_back(reinterpret_cast<const std::byte*>(input));
    std::byte* const to[] = {reinterpret_cast<std::byte*>(output)};
    reduce(from, to, count, {ddp::DType::float32, ddp::ReduceOp::sum, {}});
}

// A subtree of one node, and the node's sum of it.
struct Partial {
    RankRange ranks;
    std::size_t node;
    Vector sum;
};

// An all_reduce on nodes with so many ranks each; what a node's rank reads of another is counted.
class Plan {
public:
    Plan(const std::vector<std::size_t>& sizes, std::vector<Vector> inputs)
        : layout_(sizes, 0), inputs_(std::move(inputs)), elements_(inputs_[0].size()) {
        for (std::size_t node = 0; node < layout_.hosts(); ++node) {
            results_.emplace_back(elements_);
            for (const RankRange& ranks : layout_.subtrees(node)) {
                partials_.push_back({ranks, node, Vector(elements_)});
            }
        }
        for (std::size_t node = 0; node < layout_.hosts(); ++node) add_within(node);
        for (std::size_t node = 0; node < layout_.hosts(); ++node) finish(node);
        for (std::size_t node = 0; node < layout_.hosts(); ++node) fetch(node);
    }

    const Vector& result(std::size_t node) const { return results_[node]; }
    std::size_t sums_crossed() const { return sums_crossed_; }
    std::size_t results_crossed() const { return results_crossed_; }
    std::size_t partials() const { return partials_.size(); }

private:
    Range column(std::size_t node, std::size_t index) const {
        return share_of({0, elements_}, index, layout_.host(node).count);
    }

    // Step 1: each rank of the node its column of each subtree, from slots of the node alone.
    void add_within(std::size_t node) {
        for (std::size_t index = 0; index < layout_.host(node).count; ++index) {
            const Range mine = column(node, index);
            for (Partial& partial : partials_) {
                if (partial.node != node) continue;
                std::vector<const float*> slots;
                for (std::size_t rank = partial.ranks.first; rank < partial.ranks.end(); ++rank) {
                    slots.push_back(inputs_[rank].data() + mine.first);
                }
                add(slots, partial.sum.data() + mine.first, mine.count);
            }
        }
    }

    // Step 2: the node's share of the tensor, each rank a part of it.
    void finish(std::size_t node) {
        const Range of_node = share_of({0, elements_}, node, layout_.hosts());
        const std::size_t ranks = layout_.host(node).count;
        for (std::size_t index = 0; index < ranks; ++index) {
            const Range mine = share_of(of_node, index, ranks);
            for (const Partial& partial : partials_) {
                if (partial.node != node) sums_crossed_ += mine.count;
            }
            Vector sum = sum_of_tree({0, layout_.ranks()}, mine);
            std::copy(sum.begin(), sum.end(),
                      results_[node].begin() + static_cast<std::ptrdiff_t>(mine.first));
        }
    }

    // Of the balanced tree's inner nodes above the partial sums.
    Vector sum_of_tree(const RankRange& tree, const Range& part) const {
        for (const Partial& partial : partials_) {
            if (!(partial.ranks == tree)) continue;
            const auto first = partial.sum.begin() + static_cast<std::ptrdiff_t>(part.first);
            return {first, first + static_cast<std::ptrdiff_t>(part.count)};
        }
        const std::size_t middle = middle_of_tree(tree.count);
        const Vector left = sum_of_tree({tree.first, middle}, part);
        const Vector right = sum_of_tree({tree.first + middle, tree.count - middle}, part);
        Vector sum(part.count);
        add({left.data(), right.data()}, sum.data(), part.count);
        return sum;
    }

    // Step 3: what the other nodes have finished, once for the node.
    void fetch(std::size_t node) {
        for (std::size_t other = 0; other < layout_.hosts(); ++other) {
            if (other == node) continue;
            const Range part = share_of({0, elements_}, other, layout_.hosts());
            results_crossed_ += part.count;
            std::copy_n(results_[other].begin() + static_cast<std::ptrdiff_t>(part.first),
                        part.count,
                        results_[node].begin() + static_cast<std::ptrdiff_t>(part.first));
        }
    }

    HostLayout layout_;
    std::vector<Vector> inputs_;
    std::size_t elements_;
    std::vector<Partial> partials_;
    std::vector<Vector> results_;  // of each node
    std::size_t sums_crossed_ = 0;
    std::size_t results_crossed_ = 0;
};

struct Topology {
    std::vector<std::size_t> sizes;  // ranks of each node
    std::size_t partials;            // subtrees of the balanced tree that are a node's own
    std::size_t sums_crossed;        // elements of partial sums that a node reads of others

    std::string name() const {
        std::string name;
        for (const std::size_t size : sizes) {
            name += (name.empty() ? "" : "_") + std::to_string(size);
        }
        return name;
    }
    friend std::ostream& operator<<(std::ostream& out, const Topology& topology) {
        return out << topology.name();
    }
};

constexpr std::size_t elements = 1'009;

class NumaPlan : public testing::TestWithParam<Topology> {};

TEST_P(NumaPlan, GivesTheBitsOfOneNodeAndCrossesNoMoreThanItSays) {
    const auto& [sizes, partials, sums_crossed] = GetParam();
    const std::size_t ranks = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    std::mt19937 random(7);
    // Of differing sizes, so that the order of a sum shows in its bits.
    std::lognormal_distribution<float> number(0, 8);
    std::vector<Vector> inputs(ranks, Vector(elements));
    std::vector<const float*> all;
    for (Vector& input : inputs) {
        for (float& element : input) element = number(random);
        all.push_back(input.data());
    }
    Vector expected(elements);
    add(all, expected.data(), elements);

    const Plan plan(sizes, inputs);
    for (std::size_t node = 0; node < sizes.size(); ++node) {
        EXPECT_EQ(plan.result(node), expected) << node;
    }
    EXPECT_EQ(plan.partials(), partials);
    EXPECT_EQ(plan.sums_crossed(), sums_crossed);
    EXPECT_EQ(plan.results_crossed(), (sizes.size() - 1) * elements);
}

// One tensor less than there are nodes, where each node is one subtree; for {3, 5}, {0, 1} {2} and
// {3} {4 to 7}, each half of the tensor from two subtrees elsewhere.
INSTANTIATE_TEST_SUITE_P(
    Topologies, NumaPlan,
    testing::Values(Topology{{2, 2}, 2, elements}, Topology{{4, 4, 4}, 3, 2 * elements},
                    Topology{{3, 5}, 4, 2 * elements},
                    Topology{{1, 2, 4}, 5, 336 * 4 + 336 * 3 + 337 * 3}, Topology{{8}, 1, 0},
                    Topology{{32, 32, 32, 32}, 4, 3 * elements},
                    Topology{{48, 48}, 4, 2 * elements},
                    Topology{{24, 24, 24, 24, 24, 24, 24, 24}, 16, 14 * elements},
                    Topology{{1, 1, 1, 1, 1}, 5, 4 * elements}),
    [](const auto& test) { return test.param.name(); });

}  // namespace
