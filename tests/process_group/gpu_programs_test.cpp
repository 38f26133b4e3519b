// Random programs of a group with GPUs, the same on all ranks: collectives on two streams, waited
// for at once, by a stream or later; groups of some of the ranks; graphs of several collectives,
// launched again and again. Each result is what a serial model says, each mistake the documented
// error. Over the stand-ins, which take their time where a program says so.
#include "process_group/gpu_graph.hpp"
#include "process_group/gpus.hpp"
#include "process_group/planned_work.hpp"
#include "reducer/gpu_model.hpp"
#include "support/gradients.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

constexpr std::size_t max_elements = 200;
constexpr std::size_t most_in_flight = 3;
constexpr int steps = 12;
constexpr unsigned programs = 25;     // of each world
constexpr unsigned soak_times = 100;  // 10,000 in four worlds

// On one rank. What it draws is drawn alike on all.
class Program {
public:
    Program(ProcessGroup& group, unsigned seed) : group_(group), random_(seed) {
        for (std::size_t i = 0; i <= most_in_flight; ++i) {
            arenas_.push_back(std::make_unique<GpuTensor<std::uint8_t>>(
                group, 2 * largest_buffer(group.size(), max_elements), 0));
        }
    }

    void run() {
        const ScopedKnob delay("OPERATION_DELAY_US", std::to_string(one_in(3) ? draw(300) : 0));
        gpus().set_launch_delay(std::chrono::microseconds(one_in(3) ? draw(300) : 0));
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
        gpus().set_launch_delay(0us);
    }

private:
    struct InFlight {
        std::unique_ptr<PlannedCollective> planned;
        Work work;
        Stream stream;
    };

    std::size_t draw(std::size_t below) { return random_() % below; }
    bool one_in(std::size_t many) { return draw(many) == 0; }
    Stream a_stream() { return streams_[draw(streams_.size())]; }

    std::unique_ptr<PlannedCollective> plan_in(std::size_t arena, const CollectivePlan& plan,
                                               int rank) {
        const auto memory = std::as_writable_bytes(arenas_[arena]->values);
        return std::make_unique<PlannedCollective>(plan, rank, Arena{memory, memory});
    }
    void expect_right(const PlannedCollective& planned) {
        EXPECT_EQ(planned.wrong(), "") << describe(planned.plan());
    }

    void start_one() {
        const CollectivePlan plan = random_plan_of_nccl(random_, group_.size(), max_elements);
        InFlight one{plan_in(next_arena_, plan, group_.rank()), {}, a_stream()};
        next_arena_ = (next_arena_ + 1) % arenas_.size();
        one.work = start(group_, *one.planned, group_.device(), one.stream);
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
        expect_right(*one.planned);
    }

    // The ranks of one color; the others have a group of their own.
    void run_split() {
        while (!in_flight_.empty()) end_one();
        const bool halves = one_in(2);
        ProcessGroup part = group_.split({.color = halves ? group_.rank() % 2 : 0});
        const auto seed = static_cast<unsigned>(random_());
        std::mt19937 own(seed + static_cast<unsigned>(part.size()));
        const CollectivePlan plan = random_plan_of_nccl(own, part.size(), max_elements);
        const auto planned = plan_in(0, plan, part.rank());
        const Stream stream = a_stream();
        Work work = start(part, *planned, part.device(), stream);
        work.wait();
        expect_right(*planned);
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
        std::vector<std::unique_ptr<PlannedCollective>> planned(count);
        const auto refill = [&] {
            for (std::size_t i = 0; i < count; ++i) {
                const auto values = static_cast<std::uint32_t>(random_());
                // They choose a factor, too, which is that of the capture.
                if (plans[i].op != ReduceOp::premul_sum) plans[i].values = values;
                planned[i] = plan_in(i, plans[i], group_.rank());
            }
        };
        refill();
        CUevent_st* const event = gpus().make_event();
        {
            GpuGraph graph(first, [&] {
                gpus().record(event, first);
                gpus().wait(second, event);
                std::vector<Work> works;
                for (std::size_t i = 0; i < count; ++i) {
                    works.push_back(start(group_, *planned[i], group_.device(), lanes[i]));
                    if (mistake == 0) expect_refused(works.back());
                    if (one_in(2)) works.back().wait(lanes[i]);
                }
                for (Work& work : works) work.wait(first);
                gpus().record(event, second);
                gpus().wait(first, event);
            });
            for (std::size_t launch = 0; launch <= draw(3); ++launch) {
                refill();
                graph.launch();
                finish(first);
                for (const auto& one : planned) expect_right(*one);
                if (one_in(3)) start_one();
                while (!in_flight_.empty()) end_one();
            }
        }
        gpus().destroy_event(event);
    }
    void expect_refused(Work& work) {
        EXPECT_THAT(usage_error_of([&] { work.wait(); }), HasSubstr("is captured"));
        const GpuStream other;
        EXPECT_THAT(usage_error_of([&] {
                        group_.all_reduce(arenas_.back()->view(), ReduceOp::max, other).wait();
                    }),
                    HasSubstr("a graph is captured with this group"));
    }

    ProcessGroup& group_;
    std::mt19937 random_;
    const GpuStream one_, other_;
    const std::array<Stream, 2> streams_{one_, other_};
    std::vector<std::unique_ptr<GpuTensor<std::uint8_t>>> arenas_;
    std::size_t next_arena_ = 0;
    std::deque<InFlight> in_flight_;
};

void run_programs(unsigned seed) {
    on_worlds({1, 2, 3, 4}, [&](ProcessGroup& group) {
        for (unsigned own = seed; own < seed + programs; ++own) {
            SCOPED_TRACE("program " + std::to_string(own));
            Program(group, own).run();
            if (::testing::Test::HasFailure()) return;
        }
    });
}

TEST(GpuPrograms, DoWhatTheModelSaysOrSayWhatIsWrong) { run_programs(seed_for_ranks()); }
TEST(GpuPrograms, SoakDoWhatTheModelSaysOrSayWhatIsWrong) {
    const unsigned seed = seed_for_ranks();
    for (unsigned i = 0; i < soak_times && !HasFailure(); ++i) run_programs(seed + i * programs);
}

}  // namespace
