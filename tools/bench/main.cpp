// ddp-bench: measures one collective over a range of sizes, prints nccl-tests' table.
#include "bench/bare.hpp"
#include "bench/bench_options.hpp"
#include "bench/collective_case.hpp"
#include "bench/floor.hpp"
#include "bench/method.hpp"
#include "bench/plot.hpp"
#include "bench/report.hpp"
#include "bench/tune.hpp"

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/version.hpp>
#include <ddp/worker_env.hpp>

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace {

using namespace ddp::bench;

constexpr int exit_usage = 2;

// Of several ranks one speaks; with a broken environment, all do.
bool is_speaker() {
    try {
        return ddp::worker_env().rank == 0;
    } catch (const ddp::Error&) {
        return true;
    }
}

// Shows which row runs, where somebody watches; erased by the row.
void show_progress(const ddp::ProcessGroup& group, const std::string& text) {
    if (group.rank() != 0 || ::isatty(STDERR_FILENO) == 0) return;
    std::fputs(("\r\033[K" + text).c_str(), stderr);
}

void check_group(const ddp::ProcessGroup& group, const Options& options) {
    if (options.root >= group.size()) {
        throw ddp::UsageError("--root: " + std::to_string(options.root) +
                              " is not a rank of a group of " + std::to_string(group.size()));
    }
    if (options.kind == Kind::send_recv && group.size() < 2) {
        throw ddp::UsageError("send_recv needs two ranks; this group has one");
    }
    if (options.floor && place_of(group, options.where).type == ddp::DeviceType::cuda) {
        throw ddp::UsageError("--floor is of the host's memory: add --device cpu");
    }
}

Row measure_row(ddp::ProcessGroup& group, const Options& options, const Patterns& patterns,
                std::size_t bytes, Floor* floor) {
    CollectiveCase one_case(group, options, patterns, bytes);
    Row row;
    row.bytes = one_case.bytes();
    row.count = one_case.count();
    row.wrong = options.check ? one_case.count_wrong_from_scratch() : -1;
    const RowTime time = measure(one_case, row.bytes, options.plan);
    row.time_us = time.time_us;
    row.p99_us = time.p99_us;
    row.iterations = time.iterations;
    if (options.check) row.wrong += one_case.count_wrong(time.last);
    if (floor == nullptr) return row;
    row.floor_us = floor->measure_us(options.kind, row.bytes);
    row.bare_us = measure_bare_us(group, options, row.bytes);
    return row;
}

// Returns the elements that were wrong, over all ranks and rows.
std::int64_t run(const Options& options) {
    auto group = ddp::init_process_group({.backend = options.backend});
    check_group(group, options);
    std::optional<Floor> floor;
    if (options.floor) floor.emplace(group);
    std::unique_ptr<Report> report;
    if (group.rank() == 0) {
        RunFacts facts{group.size(), group.backend(), {"host: " + describe_cpu()}};
        const ddp::Device place = place_of(group, options.where);
        if (place != ddp::Device{}) facts.host.push_back("rank 0's tensors: " + to_string(place));
        if (floor) facts.host.push_back(floor->describe());
        report = std::make_unique<Report>(options, facts);
        report->print_head();
    }
    const Patterns patterns(options, group.size());
    std::int64_t wrong = 0;
    std::optional<std::size_t> last;
    for (const std::size_t bytes : sizes_of(options)) {
        show_progress(group, std::string(info_of(options.kind).name) + " of " +
                                 std::to_string(bytes) + " bytes ...");
        const Row row = measure_row(group, options, patterns, bytes, floor ? &*floor : nullptr);
        show_progress(group, "");
        if (row.bytes == last) continue;  // rounded to whole parts
        last = row.bytes;
        wrong += row.wrong > 0 ? row.wrong : 0;
        if (report) report->print(row);
    }
    if (report) report->print_foot();
    if (report && !options.plot.empty()) write_plot(options, *report);
    return wrong;
}

int run_action(const Options& options) {
    switch (options.action) {
        case Action::help:
            return is_speaker() ? std::fputs(help_text().c_str(), stdout) < 0 : 0;
        case Action::version:
            return is_speaker() ? std::printf("ddp-bench %s\n", ddp::version()) < 0 : 0;
        case Action::tune:
            check_tunable();
            return ddp::run_worker([&] {
                auto group = ddp::init_process_group({.backend = ddp::Backend::shm});
                tune(group, options);
            });
        case Action::run:
            break;
    }
    std::int64_t wrong = 0;
    const int exit_code = ddp::run_worker([&] { wrong = run(options); });
    return exit_code != 0 ? exit_code : wrong != 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run_action(
            parse_options({argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)}));
    } catch (const ddp::UsageError& error) {
        if (is_speaker()) std::fprintf(stderr, "ddp-bench: %s\n", error.what());
        return exit_usage;
    }
}
