// Random collectives of the serial model in memory of each kind, some in flight at once.
#pragma once

#include "process_group/planned_work.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ddp::testing {

// Memory for some collectives at once.
class Arenas {
public:
    Arenas(ProcessGroup& group, std::size_t count, std::size_t max_elements) {
        const std::size_t bytes = 2 * largest_buffer(group.size(), max_elements);
        for (std::size_t i = 0; i < count; ++i) {
            const Shape shape{static_cast<std::int64_t>(bytes)};
            ordinary_.emplace_back(bytes);
            if (i == 1) {
                adopted_ = group.adopt(TensorView{ordinary_.back().data(), shape, DType::uint8});
            }
            shared_.push_back(group.allocate(shape, DType::uint8));
        }
    }
    std::size_t size() const { return shared_.size(); }
    Arena operator[](std::size_t i) {
        return {ordinary_[i], std::as_writable_bytes(shared_[i].as<std::uint8_t>())};
    }

private:
    std::vector<std::vector<std::byte>> ordinary_;
    std::shared_ptr<void> adopted_;  // keeps the second of them so
    std::vector<Tensor> shared_;
};

// All in flight at once, waited for from the last to the first.
inline void check(ProcessGroup& group, Arenas& arenas, const std::vector<CollectivePlan>& plans) {
    std::vector<PlannedCollective> planned;
    std::vector<Work> works;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        planned.emplace_back(plans[i], group.rank(), arenas[i]);
    }
    for (const auto& one : planned) works.push_back(start(group, one));
    while (!works.empty()) {
        works.back().wait();
        works.pop_back();
    }
    for (const auto& one : planned) EXPECT_EQ(one.wrong(), "");
}

inline void check_random_plans(ProcessGroup& group, unsigned seed, std::size_t rounds,
                               std::size_t max_elements) {
    std::mt19937 random(seed);
    Arenas arenas(group, 3, max_elements);
    for (std::size_t i = 0; i < rounds; ++i) {
        std::vector<CollectivePlan> plans(1 + random() % arenas.size());
        for (auto& plan : plans) plan = random_plan(random, group.size(), max_elements);
        check(group, arenas, plans);
    }
}

}  // namespace ddp::testing
