// The command line of ddp-bench.
#pragma once

#include "bench/layout.hpp"
#include "bench/method.hpp"

#include <ddp/backend.hpp>
#include <ddp/dtype.hpp>
#include <ddp/reduce_op.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::bench {

enum class Action : std::uint8_t { run, tune, help, version };

// Where the tensors are: memory of the caller's, of ProcessGroup::allocate, or of the caller's that
// ProcessGroup::adopt has made the group's.
enum class Path : std::uint8_t { user, shared, adopted };
const char* to_string(Path) noexcept;
// In whose memory: of the group's device, which is a GPU's with backend nccl, or as it is called.
enum class Where : std::uint8_t { of_the_group, cpu, cuda };
const char* to_string(Where) noexcept;

struct Options {
    Action action = Action::run;
    Kind kind = Kind::all_reduce;
    Backend backend = Backend::automatic;
    DType dtype = DType::float32;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    Path path = Path::user;
    Where where = Where::of_the_group;
    std::size_t min_bytes = 4;
    std::size_t max_bytes = std::size_t{256} << 20;
    std::size_t factor = 4;
    Plan plan;
    bool check = true;
    bool floor = false;
    std::string json;  // a file; empty: none
    std::string plot;  // likewise
    std::string tune;  // of Action::tune
};

// Throws UsageError that names the option.
Options parse_options(std::span<char* const> arguments);
std::string help_text();

// The rows to measure: min, min * factor, ..., up to max. One row of 0 for barrier.
std::vector<std::size_t> sizes_of(const Options&);

}  // namespace ddp::bench
