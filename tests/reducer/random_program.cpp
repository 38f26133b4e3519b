#include "reducer/random_program.hpp"

#include <algorithm>
#include <random>

namespace ddp::reducer_test {
namespace {

// The same on all ranks, whatever the standard library.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t count) { return random_() % count; }
    bool once_in(std::size_t count) { return below(count) == 0; }

private:
    std::mt19937_64 random_;
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

Model random_model(Dice& dice, std::size_t groups) {
    Model model;
    model.group = dice.below(groups);
    model.wrapped = dice.once_in(2);
    // Buckets that look alike.
    model.sizes.assign(1 + dice.below(4), dice.once_in(4) ? 17 : 40);
    model.options.bucket_cap_mb = model.options.first_bucket_mb = dice.once_in(3) ? 1 : 0.0001;
    model.options.gradient_as_bucket_view = dice.once_in(2);
    model.options.find_unused_parameters = dice.once_in(2);
    return model;
}

// In one of three steps; in one of four of these the ranks disagree about when.
void choose_metric(Dice& dice, const Program& program, Step& step) {
    step.metric.assign(program.ranks, std::nullopt);
    if (!dice.once_in(3)) return;
    step.metric_group = dice.below(program.groups);
    step.metric_races = dice.once_in(3);
    const bool at_one_place = !dice.once_in(4);
    const std::size_t place = dice.below(program.models.size());
    for (auto& rank : step.metric) {
        rank = at_one_place ? place : dice.below(program.models.size());
    }
}

Step random_step(Dice& dice, const Program& program) {
    Step step;
    step.form = dice.once_in(3) ? Form::started_together : Form::one_by_one;
    step.zeroes = !dice.once_in(3);
    for (const Model& model : program.models) {
        step.backwards.push_back(random_backward(dice, model, program.ranks));
        if (step.form == Form::one_by_one) continue;
        step.backwards.back().under_no_sync = false;
        step.backwards.back().throws.assign(program.ranks, false);
    }
    choose_metric(dice, program, step);
    return step;
}

}  // namespace

Program random_program(std::uint64_t seed, std::size_t ranks) {
    Dice dice(seed);
    Program program{ranks, 1 + dice.below(2), {}, {}, {}};
    const std::size_t models = 1 + dice.below(3);
    for (std::size_t i = 0; i < models; ++i) {
        program.models.push_back(random_model(dice, program.groups));
    }
    const std::size_t steps = 1 + dice.below(4);
    for (std::size_t i = 0; i < steps; ++i) program.steps.push_back(random_step(dice, program));
    if (!dice.once_in(4)) return program;
    JoinedPart& joined = program.joined.emplace();
    for (std::size_t rank = 0; rank < ranks; ++rank) joined.batches.push_back(dice.below(4));
    joined.divide_by_initial_world_size = dice.once_in(2);
    return program;
}

float amount_of(std::size_t step, std::size_t model, std::size_t parameter, std::size_t rank) {
    return static_cast<float>(1 + (step * 1'009 + model * 613 + parameter * 97 + rank * 31) % 500);
}

Expected::Expected(const Program& program) : program_(program) {
    for (const Model& model : program.models) {
        State& state = states_.emplace_back();
        state.gradient.assign(program.ranks, std::vector<double>(model.sizes.size(), 0));
        state.used.assign(program.ranks, std::vector<bool>(model.sizes.size(), false));
    }
}

void Expected::zero() {
    for (State& state : states_) {
        for (auto& rank : state.gradient) std::ranges::fill(rank, 0);
    }
}

void Expected::backward(std::size_t step, std::size_t model) {
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

void Expected::average(std::size_t model) {
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

void Expected::joined_batch(std::size_t batch) {
    const std::vector<std::size_t>& batches = program_.joined->batches;
    std::vector<std::size_t> training;
    for (std::size_t rank = 0; rank < program_.ranks; ++rank) {
        if (batch < batches[rank]) training.push_back(rank);
    }
    const std::size_t divisor =
        program_.joined->divide_by_initial_world_size ? program_.ranks : training.size();
    State& state = states_[0];
    for (std::size_t p = 0; p < state.gradient[0].size(); ++p) {
        double sum = 0;
        for (const std::size_t rank : training) {
            sum += amount_of(program_.steps.size() + batch, 0, p, rank);
        }
        for (const std::size_t rank : training) {
            state.gradient[rank][p] = sum / static_cast<double>(divisor);
        }
    }
}

}  // namespace ddp::reducer_test
