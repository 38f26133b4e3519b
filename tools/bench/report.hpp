// What ddp-bench prints: nccl-tests' table on stdout, and JSON.
#pragma once

#include "bench/bench_options.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace ddp::bench {

struct Row {
    std::size_t bytes = 0;
    std::size_t count = 0;
    double time_us = 0;
    double p99_us = 0;
    int iterations = 0;
    std::int64_t wrong = 0;  // -1: not checked
    std::optional<double> floor_us;
    std::optional<double> bare_us;  // bench/bare.hpp

    double algbw_gbs() const {
        return time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
    }
    double floor_share() const { return floor_us && time_us > 0 ? *floor_us / time_us : 0; }
};

// What a run is, beside its options.
struct RunFacts {
    int ranks = 1;
    Backend backend = Backend::shm;  // the one that was chosen
    std::vector<std::string> host;   // further lines of the head
};

class Report {
public:
    // Opens the JSON file; throws SystemError.
    Report(const Options& options, RunFacts facts);
    void print_head() const;
    void print(const Row& row);
    void print_foot() const;
    const std::vector<Row>& rows() const { return rows_; }
    double busbw_gbs(const Row& row) const;
    std::string title() const;  // "all_reduce, 2 ranks, backend shm, path user"

private:
    void write_json(const Row& row);

    const Options& options_;
    RunFacts facts_;
    std::ofstream json_;
    std::vector<Row> rows_;
};

// "Intel(R) Xeon(R) Processor @ 2.50GHz, 2 cores".
std::string describe_cpu();

}  // namespace ddp::bench
