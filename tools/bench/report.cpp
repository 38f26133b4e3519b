#include "bench/report.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <thread>

namespace ddp::bench {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
    std::array<char, 512> text{};
    std::va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text.data(), text.size(), pattern, arguments);
    va_end(arguments);
    return text.data();
}

void put_line(const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
}

// Three significant digits at least, no more than two after the point where that is enough.
std::string format_time(double us) { return format(us < 10 ? "%.3f" : "%.2f", us); }

const char* op_name(const Options& options) {
    return info_of(options.kind).reduces ? to_string(options.op) : "none";
}

}  // namespace

Report::Report(const Options& options, RunFacts facts)
    : options_(options), facts_(std::move(facts)) {
    if (options_.json.empty()) return;
    json_.open(options_.json);
    if (!json_) throw SystemError("--json: cannot write " + options_.json, errno);
}

double Report::busbw_gbs(const Row& row) const {
    return row.algbw_gbs() * bus_factor(options_.kind, facts_.ranks);
}

std::string Report::title() const {
    return format("%s, %d ranks, backend %s, path %s", info_of(options_.kind).name, facts_.ranks,
                  to_string(facts_.backend), to_string(options_.path));
}

void Report::print_head() const {
    put_line(std::string("# ddp-bench ") + version() + ": " + title());
    for (const std::string& line : facts_.host) put_line("# " + line);
    put_line("#");
    const char* const floor = options_.floor ? "   floor(us)   share    bare(us)" : "";
    put_line(format("#%11s  %12s  %8s  %10s  %4s  %10s  %10s  %11s  %11s  %6s%s", "size(B)",
                    "count", "type", "redop", "root", "time(us)", "p99(us)", "algbw(GB/s)",
                    "busbw(GB/s)", "#wrong", floor));
}

void Report::print(const Row& row) {
    rows_.push_back(row);
    const int root = info_of(options_.kind).has_root ? options_.root : -1;
    const std::string wrong = row.wrong < 0 ? "N/A" : std::to_string(row.wrong);
    std::string line = format(
        "%12zu  %12zu  %8s  %10s  %4d  %10s  %10s  %11.3f  %11.3f  %6s", row.bytes, row.count,
        to_string(options_.dtype), op_name(options_), root, format_time(row.time_us).c_str(),
        format_time(row.p99_us).c_str(), row.algbw_gbs(), busbw_gbs(row), wrong.c_str());
    if (row.floor_us) {
        line +=
            format("  %10s  %5.1f%%  %10s", format_time(*row.floor_us).c_str(),
                   100 * row.floor_share(), row.bare_us ? format_time(*row.bare_us).c_str() : "-");
    }
    put_line(line);
    if (json_.is_open()) write_json(row);
}

void Report::write_json(const Row& row) {
    json_ << format(
        "{\"collective\": \"%s\", \"backend\": \"%s\", \"ranks\": %d, \"path\": \"%s\", "
        "\"dtype\": \"%s\", \"op\": \"%s\", \"bytes\": %zu, \"time_us\": %.4f, \"p99_us\": %.4f, "
        "\"algbw_gbs\": %.6f, \"busbw_gbs\": %.6f, \"wrong\": %s, \"iterations\": %d",
        info_of(options_.kind).name, to_string(facts_.backend), facts_.ranks,
        to_string(options_.path), to_string(options_.dtype), op_name(options_), row.bytes,
        row.time_us, row.p99_us, row.algbw_gbs(), busbw_gbs(row),
        row.wrong < 0 ? "null" : std::to_string(row.wrong).c_str(), row.iterations);
    if (row.floor_us) {
        json_ << format(", \"floor_us\": %.4f, \"floor_share\": %.4f", *row.floor_us,
                        row.floor_share());
    }
    if (row.bare_us) json_ << format(", \"bare_us\": %.4f", *row.bare_us);
    json_ << "}\n" << std::flush;
    if (!json_) throw SystemError("--json: cannot write " + options_.json, errno);
}

void Report::print_foot() const {
    std::int64_t wrong = 0;
    double bandwidth = 0;
    for (const Row& row : rows_) {
        wrong += row.wrong > 0 ? row.wrong : 0;
        bandwidth += busbw_gbs(row) / static_cast<double>(rows_.size());
    }
    put_line(format("# Out of bounds values : %lld %s", static_cast<long long>(wrong),
                    wrong == 0 ? "OK" : "FAILED"));
    put_line(format("# Avg bus bandwidth    : %.4f", bandwidth));
}

std::string describe_cpu() {
    std::ifstream info("/proc/cpuinfo");
    std::string model = "unknown";
    for (std::string line; std::getline(info, line);) {
        if (!line.starts_with("model name")) continue;
        model = line.substr(line.find(':') + 2);
        break;
    }
    return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores";
}

}  // namespace ddp::bench
