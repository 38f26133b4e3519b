// A random program of a group with GPUs, the same on all ranks: collectives on two streams, waited
// for at once, by a stream or later; groups of some of the ranks; graphs of several collectives,
// launched again and again. Each result is what a serial model says, each mistake the documented
// error. On any GPU, or what stands in for one.
#pragma once

#include "process_group/gpu_arena.hpp"
#include "process_group/gpu_graph.hpp"
#include "reducer/gpu_model.hpp"
#include "support/gradients.hpp"
#include "tensor/device/device_api.hpp"

#include <ddp/process_group.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ddp::testing {

// On one rank. What it draws is drawn alike on all.
class GpuProgram {
public:
    GpuProgram(ProcessGroup& group, unsigned seed) : group_(group), random_(seed) {
        for (std::size_t i = 0; i <= most_in_flight; ++i) {
            arenas_.push_back(std::make_unique<GpuArena>(
                group.device(), 2 * largest_buffer(group.size(), max_elements)));
        }
    }

    void run() {
        connect();
        for (int step = 0; step < steps; ++step) {
            switch (draw(8)) {
                case 0:
                    run_graph();
                    break;
                case 1:
                    run_split();
                    break;
                default:
                    start_one();
            }
            while (in_flight_.size() > draw(most_in_flight)) end_one();
        }
        while (!in_flight_.empty()) end_one();
    }

private:
    static constexpr std::size_t max_elements = 200;
    static constexpr std::size_t most_in_flight = 3;
    static constexpr int steps = 12;

    // In an arena of its own.
    struct Planned {
        std::unique_ptr<PlannedCollective> collective;
        const GpuArena* arena;
    };
    struct InFlight {
        Planned planned;
        Work work;
        Stream stream;
    };

    std::size_t draw(std::size_t below) { return random_() % below; }
    bool one_in(std::size_t many) { return draw(many) == 0; }
    Stream a_stream() { return streams_[draw(streams_.size())]; }

    // By each way that a graph may take: NCCL connects at the first use, outside of graphs.
    void connect() {
        const auto ranks = static_cast<std::int64_t>(group_.size());
        const Tensor from = group_.allocate({ranks}, DType::float32, group_.device());
        const Tensor to = group_.allocate({ranks}, DType::float32, group_.device());
        group_.all_reduce(from.view()).wait();
        group_.all_to_all(from.view(), to.view()).wait();
    }
    // Its memory is filled, on the GPU, too.
    Planned plan_in(std::size_t arena, const CollectivePlan& plan, int rank) {
        const GpuArena& where = *arenas_[arena];
        Planned planned{std::make_unique<PlannedCollective>(plan, rank, where.host()), &where};
        where.to_gpu(copies_);
        return planned;
    }
    static Work start(ProcessGroup& group, const Planned& planned, Stream stream) {
        return start_on_gpu(group, *planned.collective, *planned.arena, stream);
    }
    void expect_right(const Planned& planned) {
        planned.arena->to_host(copies_);
        EXPECT_EQ(planned.collective->wrong(), "") << describe(planned.collective->plan());
    }

    // Of the group, or of the last part of it.
    void start_one() {
        ProcessGroup& group = part_ && one_in(3) ? *part_ : group_;
        std::mt19937 own(static_cast<unsigned>(random_()) + static_cast<unsigned>(group.size()));
        const CollectivePlan plan = random_plan_of_nccl(own, group.size(), max_elements);
        InFlight one{plan_in(next_arena_, plan, group.rank()), {}, a_stream()};
        next_arena_ = (next_arena_ + 1) % arenas_.size();
        one.work = start(group, one.planned, one.stream);
        in_flight_.push_back(std::move(one));
    }
    void end_one() {
        InFlight one = std::move(in_flight_.front());
        in_flight_.pop_front();
        if (one_in(2)) {
            one.work.wait();
        } else {
            const Stream reader = a_stream();
            one.work.wait(reader);
            finish(reader);
        }
        expect_right(one.planned);
    }

    // The ranks of one color; the others have a group of their own. What they have started with
    // the part before may go on.
    void run_split() {
        const bool halves = one_in(2);
        part_.emplace(group_.split({.color = halves ? group_.rank() % 2 : 0}));
        if (one_in(2)) start_one();
        if (one_in(4)) part_.reset();
    }

    // A few collectives on one stream or two, one of which waits for the other in the end.
    void run_graph() {
        while (!in_flight_.empty()) end_one();
        const Stream first = streams_[0], second = streams_[1];
        const std::size_t count = 1 + draw(most_in_flight);
        std::vector<CollectivePlan> plans;
        std::vector<Stream> lanes;
        for (std::size_t i = 0; i < count; ++i) {
            plans.push_back(random_plan_of_nccl(random_, group_.size(), max_elements));
            lanes.push_back(one_in(2) ? second : first);
        }
        const std::size_t mistake = draw(6);
        std::vector<Planned> planned(count);
        const auto refill = [&] {
            for (std::size_t i = 0; i < count; ++i) {
                const auto values = static_cast<std::uint32_t>(random_());
                // They choose a factor, too, which is that of the capture.
                if (plans[i].op != ReduceOp::premul_sum) plans[i].values = values;
                planned[i] = plan_in(i, plans[i], group_.rank());
            }
        };
        refill();
        auto& gpu = device::device_api();
        CUevent_st* const event = gpu.make_event();
        {
            GpuGraph graph(first, [&] {
                gpu.record(event, first);
                gpu.wait(second, event);
                std::vector<Work> works;
                for (std::size_t i = 0; i < count; ++i) {
                    works.push_back(start(group_, planned[i], lanes[i]));
                    if (mistake == 0) expect_refused(works.back());
                    if (one_in(2)) works.back().wait(lanes[i]);
                }
                for (Work& work : works) work.wait(first);
                gpu.record(event, second);
                gpu.wait(first, event);
            });
            for (std::size_t launch = 0; launch <= draw(3); ++launch) {
                refill();
                graph.launch();
                finish(first);
                for (const Planned& one : planned) expect_right(one);
                if (one_in(3)) start_one();
                while (!in_flight_.empty()) end_one();
            }
        }
        gpu.destroy_event(event);
    }
    void expect_refused(Work& work) {
        EXPECT_THAT(usage_error_of([&] { work.wait(); }), ::testing::HasSubstr("is captured"));
        const GpuStream other;
        EXPECT_THAT(usage_error_of([&] {
                        group_.all_reduce(arenas_.back()->view(), ReduceOp::max, other).wait();
                    }),
                    ::testing::HasSubstr("a graph is captured with this group"));
    }

    ProcessGroup& group_;
    std::optional<ProcessGroup> part_;
    std::mt19937 random_;
    const GpuStream one_, other_, copies_;
    const std::array<Stream, 2> streams_{one_, other_};
    std::vector<std::unique_ptr<GpuArena>> arenas_;
    std::size_t next_arena_ = 0;
    std::deque<InFlight> in_flight_;
};

}  // namespace ddp::testing
