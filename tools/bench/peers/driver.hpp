// What the peers' drivers share: their command line, float32 buffers, the check and the line of
// JSON that ddp-bench --json writes too.
//   DRIVER COLLECTIVE --bytes A,B,... [--iters N|auto] [--warmup N] [--budget SECONDS]
//          [--label NAME]
#pragma once

#include "bench/layout.hpp"
#include "bench/method.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace ddp::bench {

struct DriverOptions {
    Kind kind = Kind::all_reduce;
    std::vector<std::size_t> bytes;
    Plan plan;
    std::string label;
};

inline DriverOptions parse_driver_options(int argc, char** argv, const char* label) {
    DriverOptions options;
    options.label = label;
    const auto kind = argc > 1 ? find_kind(argv[1]) : std::nullopt;
    if (!kind) {
        std::fprintf(stderr, "%s: the first word must be a collective\n", argv[0]);
        std::exit(2);
    }
    options.kind = *kind;
    for (int i = 2; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        const std::string value = argv[i + 1];
        if (name == "--bytes") {
            std::istringstream list(value);
            for (std::string item; std::getline(list, item, ',');) {
                options.bytes.push_back(std::stoull(item));
            }
        }
        if (name == "--iters") options.plan.iterations = value == "auto" ? 0 : std::stoi(value);
        if (name == "--warmup") options.plan.warmup = std::stoi(value);
        if (name == "--budget") options.plan.budget_s = std::stod(value);
        if (name == "--label") options.label = value;
    }
    return options;
}

// One rank's buffers for one row: sums of small integers in float32, which are exact.
class DriverBuffers {
public:
    DriverBuffers(Kind kind, std::size_t bytes, int rank, int ranks)
        : kind_(kind),
          rank_(rank),
          layout_(layout_of(kind, bytes / sizeof(float), ranks, rank, 0)),
          input_(allocate(layout_.input)),
          output_(info_of(kind).in_place ? nullptr : allocate(layout_.output)) {
        std::vector<float> sum(pattern_length);
        for (int r = 0; r < ranks; ++r) {
            std::vector<float> values(pattern_length);
            for (std::size_t i = 0; i < pattern_length; ++i) {
                values[i] = static_cast<float>(1 + digit(r, i));
                sum[i] += values[i];
            }
            of_rank_.push_back(to_pattern(values));
        }
        sum_ = to_pattern(sum);
        if (output_) std::memset(output_.get(), 0xff, layout_.output * sizeof(float));
    }
    const Layout& layout() const { return layout_; }
    float* input() const { return input_.get(); }
    float* output() const { return output_ ? output_.get() : input_.get(); }
    std::size_t bytes() const { return layout_.elements * sizeof(float); }

    void rewrite(int iteration) {
        const Pattern& mine = of_rank_[static_cast<std::size_t>(rank_)];
        write_sequence(reinterpret_cast<std::byte*>(input()),
                       {&mine, first_of(iteration), layout_.input});
    }
    std::size_t count_wrong(int iteration) const {
        std::size_t wrong = 0;
        const auto* at = reinterpret_cast<const std::byte*>(output());
        for (Stretch part : expected_output(kind_, layout_, rank_, 0, of_rank_, sum_)) {
            part.first += first_of(iteration);
            compare_sequence(at, part, [&](const std::byte*, const std::byte*) { ++wrong; });
            at += part.elements * sizeof(float);
        }
        return wrong;
    }

private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    using Memory = std::unique_ptr<float, Free>;
    // Through malloc, as a program's vectors are.
    static Memory allocate(std::size_t elements) {
        return Memory(static_cast<float*>(std::malloc(elements * sizeof(float) + 1)));
    }
    static Pattern to_pattern(const std::vector<float>& values) {
        const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
        return {bytes, bytes + values.size() * sizeof(float)};
    }

    Kind kind_;
    int rank_;
    Layout layout_;
    Memory input_;
    Memory output_;
    std::vector<Pattern> of_rank_;
    Pattern sum_;
};

inline void print_row(const DriverOptions& options, int ranks, std::size_t bytes,
                      const RowTime& row, long long wrong) {
    const KindInfo& info = info_of(options.kind);
    const double algbw = static_cast<double>(bytes) / row.time_us / 1e3;
    std::printf(
        "{\"collective\": \"%s\", \"backend\": \"%s\", \"ranks\": %d, \"path\": \"user\", "
        "\"dtype\": \"float32\", \"op\": \"%s\", \"bytes\": %zu, \"time_us\": %.4f, "
        "\"p99_us\": %.4f, \"algbw_gbs\": %.6f, \"busbw_gbs\": %.6f, \"wrong\": %lld, "
        "\"iterations\": %d}\n",
        info.name, options.label.c_str(), ranks, info.reduces ? "sum" : "none", bytes, row.time_us,
        row.p99_us, algbw, algbw * bus_factor(options.kind, ranks), wrong, row.iterations);
    std::fflush(stdout);
}

}  // namespace ddp::bench
