// Random training programs over one or two groups, the same on all ranks for one seed, and what
// PyTorch's rules make of the gradients. For random_programs_test and, beside the real PyTorch,
// tests/interop.
#pragma once

#include <ddp/reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::reducer_test {

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
    std::vector<Backward> backwards;  // by model
    // Before which model's backward each rank measures; none: it does not.
    std::vector<std::optional<std::size_t>> metric;
    std::size_t metric_group = 0;
    bool metric_races = false;  // its thread runs beside what follows
};

struct Model {
    std::size_t group = 0;
    bool wrapped = false;  // in DistributedDataParallel; else a bare Reducer
    std::vector<std::int64_t> sizes;
    ReducerOptions options;
};

// The end of a program: the first model trains in join(), each rank so many batches.
struct JoinedPart {
    std::vector<std::size_t> batches;  // by rank
    bool divide_by_initial_world_size = true;
};

struct Program {
    std::size_t ranks;
    std::size_t groups;
    std::vector<Model> models;
    std::vector<Step> steps;
    std::optional<JoinedPart> joined;
};

Program random_program(std::uint64_t seed, std::size_t ranks);

// What a rank's backward adds to each element of a gradient.
float amount_of(std::size_t step, std::size_t model, std::size_t parameter, std::size_t rank);

// PyTorch's rules, for all ranks: what is in each gradient, every element of which is the same.
class Expected {
public:
    explicit Expected(const Program& program);

    void zero();
    // All ranks' part of a backward, up to its averages.
    void backward(std::size_t step, std::size_t model);
    // The first model's gradients after a batch in join(), of ranks that still train.
    void joined_batch(std::size_t batch);
    double gradient(std::size_t model, std::size_t rank, std::size_t parameter) const {
        return states_[model].gradient[rank][parameter];
    }

private:
    struct State {
        std::vector<std::vector<double>> gradient;  // by rank, by parameter
        std::vector<std::vector<bool>> used;        // since the last averages
    };

    void average(std::size_t model);

    const Program& program_;
    std::vector<State> states_;
};

}  // namespace ddp::reducer_test
