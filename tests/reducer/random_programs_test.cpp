// Random programs over one or two groups: several Reducers and wrapped nets, unused parameters by
// rank, metrics from other threads, exceptions, no_sync, join. The gradients are those of a model
// of PyTorch's rules, or every rank gets an error; nothing else.
#include <ddp/distributed_data_parallel.hpp>

#include "process_group/group_access.hpp"
#include "reducer/random_program.hpp"
#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::reducer_test;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;

using Indices = std::vector<std::size_t>;

// A net whose backward is whatever the program says.
class ScriptedNet : public ToyNet {
public:
    using ToyNet::ToyNet;
    void on_gradient_ready(GradientReady hook) { ready_ = std::move(hook); }
    void ready(std::size_t parameter) const { ready_(parameter, Stream{}); }
    void leave_out(Indices unused) { unused_ = std::move(unused); }
    const Indices& unused_parameters() const { return unused_; }
    void forward() const {}
    void backward(const std::function<void()>& script) const { script(); }

private:
    GradientReady ready_;
    Indices unused_;
};

class Trainee {
public:
    Trainee(const Model& model, ProcessGroup& group) : net_(model.sizes) {
        if (model.wrapped) {
            wrapped_.emplace(net_, group, model.options);
        } else {
            bare_.emplace(net_.parameters(), group, model.options);
        }
    }

    ScriptedNet& net() { return net_; }
    Reducer& reducer() { return wrapped_ ? wrapped_->reducer() : *bare_; }
    void start_forward() { wrapped_ ? wrapped_->forward() : bare_->start_forward(); }
    void mark_ready(std::size_t parameter) {
        wrapped_ ? net_.ready(parameter) : bare_->mark_ready(parameter);
    }
    bool backward(const Indices& unused, const std::function<void()>& script) {
        if (wrapped_) {
            net_.leave_out(unused);
            wrapped_->forward();
            return wrapped_->backward(script);
        }
        bare_->start_backward(unused);
        script();
        return bare_->wait();
    }

private:
    ScriptedNet net_;
    std::optional<DistributedDataParallel<ScriptedNet>> wrapped_;
    std::optional<Reducer> bare_;
};

struct WrongSum {
    std::string what;
};

void require_near(double is, double should_be, const std::string& what) {
    if (std::abs(is - should_be) <= 1e-4 * (1 + std::abs(should_be))) return;
    throw WrongSum{what + ": " + std::to_string(is) + " instead of " + std::to_string(should_be)};
}

// An average of rank numbers that another thread asks for.
class Metric {
public:
    ~Metric() { join(); }

    void start(ProcessGroup& group, bool races) {
        value_.assign(40, static_cast<float>(group.rank() + 1));
        expected_ = static_cast<double>(group.size() + 1) / 2;
        thread_ = std::thread([this, &group, races] {
            try {
                work_ = group.all_reduce(value_, ReduceOp::avg);
                if (races) work_.wait();
            } catch (...) {
                error_ = std::current_exception();
            }
        });
        if (!races) thread_.join();
    }
    void finish() {
        join();
        if (error_) std::rethrow_exception(error_);
        if (value_.empty()) return;
        work_.wait();
        require_near(value_[0], expected_, "the metric");
        value_.clear();
    }
    void join() {
        if (thread_.joinable()) thread_.join();
    }

private:
    std::vector<float> value_;
    double expected_ = 0;
    Work work_;
    std::exception_ptr error_;
    std::thread thread_;
};

// One rank's run of a program. Throws what ddp throws.
class Run {
public:
    Run(const Program& program, std::vector<ProcessGroup>& groups, std::size_t rank)
        : program_(program), groups_(groups), rank_(rank), expected_(program) {
        for (const Model& model : program.models) {
            trainees_.push_back(std::make_unique<Trainee>(model, groups[model.group]));
        }
    }

    // A rank that gets an error ends, as far as its groups are concerned: before what is in flight
    // is waited for.
    void all() {
        try {
            for (std::size_t step = 0; step < program_.steps.size(); ++step) one(step);
            if (program_.joined) join();
            for (ProcessGroup& group : groups_) group.barrier().wait();
        } catch (...) {
            for (ProcessGroup& group : groups_) process_group::GroupObserver(group).fail();
            metric_.join();
            throw;
        }
    }

private:
    struct Bad {};

    void zero() {
        expected_.zero();
        for (const auto& trainee : trainees_) trainee->net().zero_grad();
    }
    void one(std::size_t step) {
        const Step& plan = program_.steps[step];
        if (plan.zeroes) zero();
        const bool together = plan.form == Form::started_together;
        for (std::size_t m = 0; together && m < trainees_.size(); ++m) {
            trainees_[m]->reducer().start_backward(unused(step, m));
        }
        for (std::size_t m = 0; m < trainees_.size(); ++m) {
            if (plan.metric[rank_] == m)
                metric_.start(groups_[plan.metric_group], plan.metric_races);
            together ? mark(step, m) : one_backward(step, m);
        }
        for (std::size_t m = 0; together && m < trainees_.size(); ++m) {
            check(step, m, trainees_[m]->reducer().wait());
        }
        metric_.finish();
    }
    void one_backward(std::size_t step, std::size_t m) {
        const auto run = [&] {
            const auto script = [&] { mark(step, m); };
            check(step, m, trainees_[m]->backward(unused(step, m), script));
        };
        try {
            if (program_.steps[step].backwards[m].under_no_sync) {
                const auto guard = trainees_[m]->reducer().no_sync();
                run();
            } else {
                run();
            }
        } catch (const Bad&) {  // a batch that is skipped
            expected_.backward(step, m);
        }
    }
    Indices unused(std::size_t step, std::size_t m) const {
        const std::vector<bool>& unused = program_.steps[step].backwards[m].unused[rank_];
        Indices which;
        for (std::size_t p = 0; p < unused.size(); ++p) {
            if (unused[p]) which.push_back(p);
        }
        return which;
    }
    void mark(std::size_t step, std::size_t m) {
        const Backward& plan = program_.steps[step].backwards[m];
        std::size_t marked = 0;
        for (std::size_t left = program_.models[m].sizes.size(); left > 0; --left) {
            const std::size_t p = left - 1;
            if (plan.unused[rank_][p]) continue;
            if (plan.throws[rank_] && marked == plan.marked_before) throw Bad{};
            add(step, m, p);
            ++marked;
        }
        if (plan.throws[rank_]) throw Bad{};
    }
    void add(std::size_t step, std::size_t m, std::size_t p) {
        for (float& grad : trainees_[m]->net().parameters()[p].grad.as<float>()) {
            grad += amount_of(step, m, p, rank_);
        }
        trainees_[m]->mark_ready(p);
    }
    void check(std::size_t step, std::size_t m, bool sent) {
        expected_.backward(step, m);
        require_expected(m, "step " + std::to_string(step) + (sent ? ", sent" : ", not sent"));
    }
    void require_expected(std::size_t m, const std::string& when) {
        const auto parameters = trainees_[m]->net().parameters();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            const std::string what =
                when + ", model " + std::to_string(m) + ", parameter " + std::to_string(p);
            for (const float grad : parameters[p].grad.as<float>()) {
                require_near(grad, expected_.gradient(m, rank_, p), what);
            }
        }
    }
    void join() {
        const JoinedPart& plan = *program_.joined;
        Trainee& first = *trainees_[0];
        const auto batch = [&](std::size_t number) {
            zero();
            first.start_forward();
            first.reducer().start_backward();
            for (std::size_t left = program_.models[0].sizes.size(); left > 0; --left) {
                add(program_.steps.size() + number, 0, left - 1);
            }
            if (!first.reducer().wait()) throw WrongSum{"a batch in join() that was not sent"};
            expected_.joined_batch(number);
            require_expected(0, "batch " + std::to_string(number) + " in join()");
        };
        first.reducer().join(
            [&] {
                for (std::size_t i = 0; i < plan.batches[rank_]; ++i) batch(i);
            },
            {.divide_by_initial_world_size = plan.divide_by_initial_world_size});
    }

    const Program& program_;
    std::vector<ProcessGroup>& groups_;
    std::size_t rank_;
    Expected expected_;
    std::vector<std::unique_ptr<Trainee>> trainees_;
    Metric metric_;
};

enum Outcome : std::int32_t { fine, error, wrong };

Outcome run(const Program& program, ProcessGroup& world, std::string& words) {
    std::vector<ProcessGroup> groups;
    for (std::size_t i = 0; i < program.groups; ++i) groups.push_back(world.split({.color = 0}));
    try {
        Run(program, groups, static_cast<std::size_t>(world.rank())).all();
        return fine;
    } catch (const WrongSum& sum) {
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
              {.timeout = timeout,
               .init = {.backend = where.backend, .timeout = patience},
               .hosts = where.backend == Backend::hierarchical ? std::vector{1, where.ranks - 1}
                                                               : std::vector<int>{}});
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
    if (HAS_GLOO) places.push_back({Backend::hierarchical, 3});
    return places;
}

INSTANTIATE_TEST_SUITE_P(Groups, RandomPrograms, ::testing::ValuesIn(places()),
                         [](const auto& test) {
                             const std::string ranks = std::to_string(test.param.ranks);
                             return std::string(to_string(test.param.backend)) + "With" + ranks +
                                    "Ranks";
                         });

}  // namespace
