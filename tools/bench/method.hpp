// How a call is timed: the same for ddp-bench and for each peer, so that times can be compared.
//
// Each rank, each iteration: rewrites its whole input, as a backward pass does; meets the others in
// a barrier of the library under test; then times the call from its start until its result may be
// used; then meets them again, for on a core of several ranks the rewriting of one would keep
// others from seeing that theirs has ended. The time of an iteration is the mean over the ranks; of
// a row, the median over iterations. Warm-up iterations run before. All ranks do as many iterations
// as rank 0 finds time for.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace ddp::bench {

struct Plan {
    int iterations = 0;     // 0: as many as fit the budget
    int warmup = 0;         // 0: by the size
    double budget_s = 0.3;  // of one row
};

struct RowTime {
    double time_us = 0;
    double p99_us = 0;
    int iterations = 0;
    int last = 0;  // the number of the last iteration, warm-up included
};

inline constexpr std::size_t large_bytes = std::size_t{16} << 20;

inline int warmup_for(const Plan& plan, std::size_t bytes) {
    if (plan.warmup > 0) return plan.warmup;
    return bytes < large_bytes ? 5 : 2;
}

inline int iterations_for(const Plan& plan, std::size_t bytes, double seconds_each) {
    if (plan.iterations > 0) return plan.iterations;
    const double fit = plan.budget_s / std::max(seconds_each, 1e-7);
    return static_cast<int>(std::clamp(fit, bytes < large_bytes ? 7.0 : 5.0, 20000.0));
}

// The smallest value that a share `q` of all do not exceed; sorts. The median is a mean of two
// when there is no middle.
inline double quantile(std::vector<double>& values, double q) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    if (q == 0.5 && n % 2 == 0) return (values[n / 2 - 1] + values[n / 2]) / 2;
    const auto place = static_cast<std::size_t>(std::ceil(q * static_cast<double>(n)));
    return values[std::max<std::size_t>(place, 1) - 1];
}

// Library: rewrite(iteration); barrier(); call(); int agree(int), which gives rank 0's number to
// all; average(span<double>), which makes each element the mean over the ranks.
template <class Library>
RowTime measure(Library& library, std::size_t bytes, const Plan& plan) {
    using Clock = std::chrono::steady_clock;
    int iteration = 0;
    const auto once = [&] {
        library.rewrite(iteration++);
        library.barrier();
        const auto start = Clock::now();
        library.call();
        const std::chrono::duration<double, std::micro> time = Clock::now() - start;
        library.barrier();
        return time.count();
    };
    auto start = Clock::now();
    for (int i = warmup_for(plan, bytes); i > 0; --i) {
        start = Clock::now();
        once();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const int iterations = library.agree(iterations_for(plan, bytes, seconds));
    std::vector<double> times(static_cast<std::size_t>(iterations));
    for (double& time : times) time = once();
    library.average(times);
    RowTime row;
    row.time_us = quantile(times, 0.5);
    row.p99_us = quantile(times, 0.99);
    row.iterations = iterations;
    row.last = iteration - 1;
    return row;
}

}  // namespace ddp::bench
