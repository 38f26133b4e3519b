// Random programs over one or two groups: several Reducers, unused parameters by rank, metrics from
// other threads, exceptions, no_sync. The gradients are those of a model of PyTorch's rules, or
// every rank gets an error; nothing else.
#include <ddp/reducer.hpp>

#include "process_group/process_group_impl.hpp"
#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;

using Indices = std::vector<std::size_t>;

// The same on all ranks, whatever the standard library.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t count) { return random_() % count; }
    bool once_in(std::size_t count) { return below(count) == 0; }

private:
    std::mt19937_64 random_;
};

struct Backward {
    std::vector<std::vector<bool>> unused;  // by rank, by parameter
    bool under_no_sync = false;
    // The backwards of these ranks throw when so many gradients have been marked.
    std::vector<bool> throws;
    std::size_t marked_before = 0;
};

enum class Form { one_by_one, started_together };
struct Step {
    Form form = Form::one_by_one;
    bool zeroes = false;
    std::vector<Backward> backwards;  // by reducer
    // Before which reducer's backward each rank measures; none: it does not.
    std::vector<std::optional<std::size_t>> metric;
};

struct Model {
    std::size_t group = 0;
    std::vector<std::int64_t> sizes;
    ReducerOptions options;
};

struct Program {
    std::size_t ranks;
    std::size_t groups;
    std::vector<Model> models;
    std::vector<Step> steps;
};

Backward random_backward(Dice& dice, const Model& model, std::size_t ranks) {
    Backward backward;
    backward.unused.assign(ranks, std::vector<bool>(model.sizes.size(), false));
    backward.throws.assign(ranks, false);
    if (model.options.find_unused_parameters) {
        for (auto& rank : backward.unused) {
            for (auto&& parameter : rank) parameter = dice.once_in(3);
        }
    }
    backward.under_no_sync = dice.once_in(4);
    if (dice.once_in(8)) {
        const bool all = dice.once_in(2);
        for (auto&& rank : backward.throws) rank = all;
        if (!all) backward.throws[dice.below(ranks)] = true;
        backward.marked_before = dice.once_in(2) ? 0 : dice.below(model.sizes.size());
    }
    return backward;
}

Program random_program(std::uint64_t seed, std::size_t ranks) {
    Dice dice(seed);
    Program program{ranks, 1 + dice.below(2), {}, {}};
    const std::size_t models = 1 + dice.below(3);
    for (std::size_t i = 0; i < models; ++i) {
        Model& model = program.models.emplace_back();
        model.group = dice.below(program.groups);
        // Buckets that look alike.
        model.sizes.assign(1 + dice.below(4), dice.once_in(4) ? 17 : 40);
        model.options.bucket_cap_mb = model.options.first_bucket_mb = dice.once_in(3) ? 1 : 0.0001;
        model.options.gradient_as_bucket_view = dice.once_in(2);
        model.options.find_unused_parameters = dice.once_in(2);
    }
    const std::size_t steps = 1 + dice.below(4);
    for (std::size_t i = 0; i < steps; ++i) {
        Step& step = program.steps.emplace_back();
        step.form = dice.once_in(3) ? Form::started_together : Form::one_by_one;
        step.zeroes = !dice.once_in(3);
        for (const Model& model : program.models) {
            step.backwards.push_back(random_backward(dice, model, ranks));
            if (step.form == Form::one_by_one) continue;
            step.backwards.back().under_no_sync = false;
            step.backwards.back().throws.assign(ranks, false);
        }
        const bool measures = dice.once_in(3);
        const bool at_one_place = !dice.once_in(4);
        const std::size_t place = dice.below(models);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            step.metric.push_back(
                measures ? std::optional(at_one_place ? place : dice.below(models)) : std::nullopt);
        }
    }
    return program;
}

// What a rank's backward adds to each element of a gradient.
float amount_of(std::size_t step, std::size_t model, std::size_t parameter, std::size_t rank) {
    return static_cast<float>(1 + (step * 1'009 + model * 613 + parameter * 97 + rank * 31) % 500);
}

// PyTorch's rules, for all ranks: what is in each gradient, every element of which is the same.
class Expected {
public:
    explicit Expected(const Program& program) : program_(program) {
        for (const Model& model : program.models) {
            State& state = states_.emplace_back();
            state.gradient.assign(program.ranks, std::vector<double>(model.sizes.size(), 0));
            state.used.assign(program.ranks, std::vector<bool>(model.sizes.size(), false));
        }
    }

    void zero() {
        for (State& state : states_) {
            for (auto& rank : state.gradient) std::ranges::fill(rank, 0);
        }
    }
    // All ranks' part of a backward, up to its averages.
    void backward(std::size_t step, std::size_t model) {
        const Backward& plan = program_.steps[step].backwards[model];
        State& state = states_[model];
        for (std::size_t rank = 0; rank < program_.ranks; ++rank) {
            std::size_t marked = 0;
            for (std::size_t left = state.gradient[rank].size(); left > 0; --left) {
                const std::size_t p = left - 1;
                if (plan.unused[rank][p]) continue;
                if (plan.throws[rank] && marked == plan.marked_before) break;
                state.gradient[rank][p] += amount_of(step, model, p, rank);
                state.used[rank][p] = true;
                ++marked;
            }
        }
        if (!plan.under_no_sync && std::ranges::count(plan.throws, true) == 0) average(model);
    }
    double gradient(std::size_t model, std::size_t rank, std::size_t parameter) const {
        return states_[model].gradient[rank][parameter];
    }

private:
    struct State {
        std::vector<std::vector<double>> gradient;  // by rank, by parameter
        std::vector<std::vector<bool>> used;        // since the last averages
    };

    void average(std::size_t model) {
        State& state = states_[model];
        for (std::size_t p = 0; p < state.gradient[0].size(); ++p) {
            bool used = !program_.models[model].options.find_unused_parameters;
            double sum = 0;
            for (std::size_t rank = 0; rank < program_.ranks; ++rank) {
                used = used || state.used[rank][p];
                sum += state.gradient[rank][p];
            }
            for (std::size_t rank = 0; rank < program_.ranks; ++rank) {
                state.used[rank][p] = false;
                if (used) state.gradient[rank][p] = sum / static_cast<double>(program_.ranks);
            }
        }
    }

    const Program& program_;
    std::vector<State> states_;
};

// One rank's run of a program. Throws what ddp throws.
class Run {
public:
    struct WrongSum {
        std::string what;
    };

    Run(const Program& program, std::vector<ProcessGroup>& groups, std::size_t rank)
        : program_(program), groups_(groups), rank_(rank), expected_(program) {
        for (const Model& model : program.models) {
            nets_.push_back(std::make_unique<ToyNet>(model.sizes));
            reducers_.push_back(std::make_unique<Reducer>(nets_.back()->parameters(),
                                                          groups[model.group], model.options));
        }
    }

    // A rank that gets an error ends, as far as its groups are concerned: before what is in flight
    // is waited for.
    void all() {
        try {
            for (std::size_t step = 0; step < program_.steps.size(); ++step) one(step);
            for (ProcessGroup& group : groups_) group.barrier().wait();
        } catch (...) {
            for (ProcessGroup& group : groups_) group.impl().backend->fail();
            throw;
        }
    }

private:
    struct Bad {};

    void one(std::size_t step) {
        const Step& plan = program_.steps[step];
        if (plan.zeroes) {
            expected_.zero();
            for (const auto& net : nets_) net->zero_grad();
        }
        metric_.assign(40, static_cast<float>(rank_ + 1));
        const auto measure_before = [&](std::size_t model) {
            if (plan.metric[rank_] != model) return;
            std::thread([&] { measuring_ = groups_[0].all_reduce(metric_, ReduceOp::avg); }).join();
        };
        const bool together = plan.form == Form::started_together;
        for (std::size_t m = 0; together && m < nets_.size(); ++m) start(step, m);
        for (std::size_t m = 0; m < nets_.size(); ++m) {
            measure_before(m);
            if (together) {
                mark(step, m);
            } else {
                one_backward(step, m);
            }
        }
        for (std::size_t m = 0; together && m < nets_.size(); ++m) finish(step, m);
        if (!plan.metric[rank_]) return;
        measuring_.wait();
        require_near(metric_[0], static_cast<double>(program_.ranks + 1) / 2, "the metric");
    }

    void one_backward(std::size_t step, std::size_t m) {
        try {
            if (program_.steps[step].backwards[m].under_no_sync) {
                no_sync_backward(step, m);
            } else {
                start(step, m);
                mark(step, m);
                finish(step, m);
            }
        } catch (const Bad&) {  // a batch that is skipped
            expected_.backward(step, m);
        }
    }
    void no_sync_backward(std::size_t step, std::size_t m) {
        const auto guard = reducers_[m]->no_sync();
        start(step, m);
        mark(step, m);
        finish(step, m);
    }
    void start(std::size_t step, std::size_t m) {
        const std::vector<bool>& unused = program_.steps[step].backwards[m].unused[rank_];
        Indices which;
        for (std::size_t p = 0; p < unused.size(); ++p) {
            if (unused[p]) which.push_back(p);
        }
        reducers_[m]->start_backward(which);
    }
    void mark(std::size_t step, std::size_t m) {
        const Backward& plan = program_.steps[step].backwards[m];
        std::size_t marked = 0;
        const auto parameters = nets_[m]->parameters();
        for (std::size_t left = parameters.size(); left > 0; --left) {
            const std::size_t p = left - 1;
            if (plan.unused[rank_][p]) continue;
            if (plan.throws[rank_] && marked == plan.marked_before) throw Bad{};
            for (float& grad : parameters[p].grad.as<float>()) {
                grad += amount_of(step, m, p, rank_);
            }
            reducers_[m]->mark_ready(p);
            ++marked;
        }
        if (plan.throws[rank_]) throw Bad{};
    }
    void finish(std::size_t step, std::size_t m) {
        const bool sent = reducers_[m]->wait();
        expected_.backward(step, m);
        const auto parameters = nets_[m]->parameters();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            const std::string what = "step " + std::to_string(step) + ", reducer " +
                                     std::to_string(m) + ", parameter " + std::to_string(p) +
                                     (sent ? ", sent" : ", not sent");
            for (const float grad : parameters[p].grad.as<float>()) {
                require_near(grad, expected_.gradient(m, rank_, p), what);
            }
        }
    }
    static void require_near(double is, double should_be, const std::string& what) {
        if (std::abs(is - should_be) <= 1e-4 * (1 + std::abs(should_be))) return;
        throw WrongSum{what + ": " + std::to_string(is) + " instead of " +
                       std::to_string(should_be)};
    }

    const Program& program_;
    std::vector<ProcessGroup>& groups_;
    std::size_t rank_;
    Expected expected_;
    std::vector<std::unique_ptr<ToyNet>> nets_;
    std::vector<std::unique_ptr<Reducer>> reducers_;
    std::vector<float> metric_;
    Work measuring_;
};

enum Outcome : std::int32_t { fine, error, wrong };

Outcome run(const Program& program, ProcessGroup& world, std::string& words) {
    std::vector<ProcessGroup> groups;
    for (std::size_t i = 0; i < program.groups; ++i) groups.push_back(world.split({.color = 0}));
    try {
        Run(program, groups, static_cast<std::size_t>(world.rank())).all();
        return fine;
    } catch (const Run::WrongSum& sum) {
        words = sum.what;
        return wrong;
    } catch (const Error& said) {
        words = said.what();
        return error;
    }
}

// A rank that skipped a batch may wait for another in one group, and that one for it in the other.
constexpr std::chrono::milliseconds patience{3'000};

struct Where {
    Backend backend;
    int ranks;
};

class RandomPrograms : public ::testing::TestWithParam<Where> {};

void run_seeds(const Where& where, std::uint64_t first, std::size_t count) {
    const auto body = [=](ProcessGroup& world) {
        const auto ranks = static_cast<std::size_t>(world.size());
        std::array<std::size_t, 2> ends{};
        for (std::uint64_t seed = first; seed < first + count; ++seed) {
            const Program program = random_program(seed, ranks);
            std::string words = "nothing";
            std::array<std::int32_t, 1> mine{run(program, world, words)};
            std::vector<std::int32_t> all(ranks);
            world.all_gather(mine, all).wait();
            const bool alike = std::ranges::count(all, all[0]) == world.size();
            EXPECT_TRUE(alike && all[0] != wrong) << "seed " << seed << ": " << words;
            if (all[0] != wrong) ++ends[static_cast<std::size_t>(all[0])];
        }
        EXPECT_GT(ends[fine], count / 4) << "too few programs that are right";
        EXPECT_GT(ends[error], count / 50) << "too few that are not";
    };
    const auto timeout = std::chrono::seconds{60} + std::chrono::milliseconds{500} * count;
    run_ranks(where.ranks, body,
              {.timeout = timeout, .init = {.backend = where.backend, .timeout = patience}});
}

// 504 seeds in all.
TEST_P(RandomPrograms, HavePyTorchsGradientsOrAnErrorOnEveryRank) {
    run_seeds(GetParam(), 1'000'000U * static_cast<std::uint64_t>(GetParam().ranks), 84);
}
// 20,004 seeds in all.
TEST_P(RandomPrograms, SoakHavePyTorchsGradientsOrAnErrorOnEveryRank) {
    run_seeds(GetParam(), 10'000'000U * static_cast<std::uint64_t>(GetParam().ranks), 3'334);
}

std::vector<Where> places() {
    std::vector<Where> places;
    for (const int ranks : {2, 3, 4}) {
        places.push_back({Backend::shm, ranks});
        if (HAS_GLOO) places.push_back({Backend::gloo, ranks});
    }
    return places;
}

INSTANTIATE_TEST_SUITE_P(Groups, RandomPrograms, ::testing::ValuesIn(places()),
                         [](const auto& test) {
                             const std::string ranks = std::to_string(test.param.ranks);
                             return std::string(to_string(test.param.backend)) + "With" + ranks +
                                    "Ranks";
                         });

}  // namespace
