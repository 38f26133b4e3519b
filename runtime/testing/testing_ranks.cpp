// Ranks as workers of launch(): FailurePolicy::tell_host, so that a rank that dies, as a
// test may want it to, stops no other rank. This process learns how each rank ended from the
// launcher, and what failed in a rank from that rank's reports.
#include <ddp/testing_ranks.hpp>

#include "base/deadline.hpp"
#include "base/frame.hpp"
#include "contract/error_file.hpp"
#include "launch/launch_job.hpp"
#include "testing/rank_link.hpp"

#include <ddp/error.hpp>
#include <ddp/worker_env.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

namespace ddp::testing {
namespace {

// The group's deadline comes before the test's: its error says who waited for whom.
InitOptions init_options(const RunRanksOptions& options) {
    InitOptions init = options.init;
    init.timeout = std::min(init.timeout, options.timeout * 3 / 4);
    return init;
}

// Makes this rank one of its host.
void settle_on(const std::vector<int>& hosts) {
    int local_rank = worker_env().rank;
    std::size_t host = 0;
    for (; host + 1 < hosts.size() && local_rank >= hosts[host]; ++host) local_rank -= hosts[host];
    const auto set = [](const char* name, const std::string& value) {
        ::setenv(name, value.c_str(), 1);
    };
    set("DDP_HOST_ID", "test-host-" + std::to_string(host));
    set("DDP_SOCKET_IFNAME", "lo");
    set("LOCAL_RANK", std::to_string(local_rank));
    set("LOCAL_WORLD_SIZE", std::to_string(hosts[host]));
}

void run_in_rank(const RankBody& body, const RunRanksOptions& options) {
    const base::UniqueFd reports = begin_body();
    if (!options.hosts.empty()) settle_on(options.hosts);
    RankReporter reporter(reports.get());
    try {
        body(reporter, [&] { return init_process_group(init_options(options)); });
    } catch (...) {
        const contract::ErrorReport report = contract::describe(std::current_exception());
        const std::string text = "exception left the body: " + report.message;
        report.peer ? reporter.consequence(text) : reporter.failure(text);
    }
    reporter.finished();
}

LaunchOptions launch_options(int ranks, const RunRanksOptions& options) {
    LaunchOptions launch{.nproc_per_node = ranks,
                         .shutdown_timeout = std::chrono::seconds{0},
                         .timeout = options.timeout,
                         .arguments = options.arguments,
                         .launcher = options.launcher};
    launch.arguments.emplace_back("--status=off");
    return launch;
}

// What the way in which a rank ended adds to what it reported.
std::optional<std::string> describe_wrong_end(const contract::RankEnd& end, bool finished,
                                              const RunRanksOptions& options) {
    const bool may_die = std::find(options.may_die.begin(), options.may_die.end(), end.rank) !=
                         options.may_die.end();
    if (end.status.signal != 0 && may_die) return std::nullopt;
    if (!end.status.ok()) {
        return (end.status.signal != 0 ? "ended by " : "ended with ") +
               contract::to_string(end.status);
    }
    if (!finished) return "left with exit code 0 before its body was finished";
    return std::nullopt;
}

std::optional<std::string> describe_wrong_end(const launching::LauncherResult& result, int rank,
                                              bool finished, const RunRanksOptions& options) {
    const auto end = std::find_if(result.ends.begin(), result.ends.end(),
                                  [&](const auto& one) { return one.rank == rank; });
    if (end == result.ends.end()) return "its end is unknown: " + result.job.report;
    if (result.job.timed_out && end->stopped_with != 0) {
        return "still ran after " + base::to_string(options.timeout) + " and was killed";
    }
    return describe_wrong_end(*end, finished, options);
}

}  // namespace

void RankReporter::send(char kind, const std::string& message) {
    std::string frame;
    base::append_frame(frame, kind + message.substr(0, max_report_bytes - 1));
    for (std::string_view rest = frame; !rest.empty();) {
        const ssize_t written = ::write(fd_, rest.data(), rest.size());
        if (written < 0 && errno != EINTR) return;  // no memory; the missing end says enough
        if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

std::vector<std::string> program_arguments() { return launching::own_arguments(); }

RankTest::RankTest(std::string name, std::vector<std::string> arguments,
                   std::vector<std::string> environment)
    : name_(std::move(name)),
      arguments_(std::move(arguments)),
      environment_(std::move(environment)) {}

std::string RankTest::made_once(const std::function<std::string()>& make) {
    if (launching::inside_body()) throw UsageError("made_once: not inside a body");
    values_.push_back(is_waiting_rank() ? value_of_test(values_.size()) : make());
    return values_.back();
}

std::vector<RankFailure> RankTest::run(int ranks, const RankBody& body,
                                       const RunRanksOptions& options, const CallSite& where) {
    if (ranks < 1) throw UsageError("run_ranks: " + std::to_string(ranks) + " ranks; at least 1");
    const int settled = std::accumulate(options.hosts.begin(), options.hosts.end(), 0);
    if (!options.hosts.empty() && settled != ranks) {
        throw UsageError("run_ranks: " + std::to_string(ranks) + " ranks, but the hosts have " +
                         std::to_string(settled));
    }
    const RankLinks links(ranks, values_);
    LaunchOptions launch = launch_options(ranks, options);
    launch.environment = environment_;
    launch.environment.push_back(links.variable());
    const auto result = launching::run_body(
        launch, {.name = {"run_ranks() of " + name_, ++calls_, launching::describe_location(where)},
                 .body = [&] { run_in_rank(body, options); },
                 .arguments = arguments_,
                 .failure_policy = contract::FailurePolicy::tell_host});
    std::vector<RankFailure> failures;
    std::vector<RankFailure> consequences;
    if (!result) return failures;
    for (int rank = 0; rank < ranks; ++rank) {
        bool finished = false;
        for (const std::string& report : links.reports(rank)) {
            if (report.starts_with('F')) failures.push_back({rank, report.substr(1)});
            if (report.starts_with('C')) consequences.push_back({rank, report.substr(1)});
            finished = finished || report.starts_with('E');
        }
        if (const auto wrong = describe_wrong_end(*result, rank, finished, options)) {
            failures.push_back({rank, *wrong});
        }
    }
    failures.insert(failures.end(), consequences.begin(), consequences.end());
    return failures;
}

}  // namespace ddp::testing
