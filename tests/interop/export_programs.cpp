// export_programs RANKS COUNT: random training programs of reducer/random_program.hpp as lines of
// JSON, each with the gradients that are expected after each backward, for torch_programs.py to run
// on the real PyTorch. Left out are programs that PyTorch does not run: with exceptions, with
// metrics in another order on other ranks, and those where a rank's backward reaches no parameter.
#include "reducer/random_program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace {

using namespace ddp::reducer_test;
using nlohmann::json;

bool runs_on_pytorch(const Backward& backward) {
    return std::ranges::count(backward.throws, true) == 0 &&
           std::ranges::all_of(backward.unused, [](const std::vector<bool>& rank) {
               return std::ranges::count(rank, false) > 0;
           });
}

bool runs_on_pytorch(const Step& step) {
    const bool at_one_place = std::ranges::count(step.metric, step.metric[0]) ==
                              static_cast<std::ptrdiff_t>(step.metric.size());
    return at_one_place && !(step.metric[0] && step.metric_races) &&
           std::ranges::all_of(step.backwards,
                               [](const Backward& one) { return runs_on_pytorch(one); });
}

json gradients_of(const Expected& expected, const Program& program, std::size_t model) {
    json ranks = json::array();
    for (std::size_t rank = 0; rank < program.ranks; ++rank) {
        json parameters = json::array();
        for (std::size_t p = 0; p < program.models[model].sizes.size(); ++p) {
            parameters.push_back(expected.gradient(model, rank, p));
        }
        ranks.push_back(parameters);
    }
    return ranks;
}

json amounts_of(const Program& program, std::size_t step, std::size_t model) {
    json ranks = json::array();
    for (std::size_t rank = 0; rank < program.ranks; ++rank) {
        json parameters = json::array();
        for (std::size_t p = 0; p < program.models[model].sizes.size(); ++p) {
            parameters.push_back(amount_of(step, model, p, rank));
        }
        ranks.push_back(parameters);
    }
    return ranks;
}

json step_of(Expected& expected, const Program& program, std::size_t number) {
    const Step& step = program.steps[number];
    json backwards = json::array();
    if (step.zeroes) expected.zero();
    for (std::size_t m = 0; m < program.models.size(); ++m) {
        expected.backward(number, m);
        backwards.push_back({{"unused", step.backwards[m].unused},
                             {"no_sync", step.backwards[m].under_no_sync},
                             {"amounts", amounts_of(program, number, m)},
                             {"expected", gradients_of(expected, program, m)}});
    }
    return {{"together", step.form == Form::started_together},
            {"zeroes", step.zeroes},
            {"metric", step.metric[0] ? json(*step.metric[0]) : json()},
            {"metric_group", step.metric_group},
            {"backwards", backwards}};
}

json joined_of(Expected& expected, const Program& program) {
    if (!program.joined) return {};
    json batches = json::array();
    for (std::size_t i = 0; i < std::ranges::max(program.joined->batches); ++i) {
        expected.zero();
        expected.joined_batch(i);
        batches.push_back({{"amounts", amounts_of(program, program.steps.size() + i, 0)},
                           {"expected", gradients_of(expected, program, 0)}});
    }
    return {{"batches", batches},
            {"by_rank", program.joined->batches},
            {"divide_by_initial_world_size", program.joined->divide_by_initial_world_size}};
}

json whole(const Program& program, std::uint64_t seed) {
    json models = json::array();
    for (const Model& model : program.models) {
        models.push_back({{"group", model.group},
                          {"sizes", model.sizes},
                          {"bucket_cap_mb", model.options.bucket_cap_mb},
                          {"views", model.options.gradient_as_bucket_view.value()},
                          {"find_unused", model.options.find_unused_parameters}});
    }
    Expected expected(program);
    json steps = json::array();
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
        steps.push_back(step_of(expected, program, i));
    }
    return {{"seed", seed},
            {"groups", program.groups},
            {"models", models},
            {"steps", steps},
            {"joined", joined_of(expected, program)}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: export_programs RANKS COUNT\n";
        return 2;
    }
    const auto ranks = static_cast<std::size_t>(std::atoi(argv[1]));
    int left = std::atoi(argv[2]);
    for (std::uint64_t seed = 0; left > 0; ++seed) {
        const Program program = random_program(seed, ranks);
        if (!std::ranges::all_of(program.steps,
                                 [](const Step& step) { return runs_on_pytorch(step); })) {
            continue;
        }
        std::cout << whole(program, seed) << "\n";
        --left;
    }
}
