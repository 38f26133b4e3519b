// The proof: two ranks that ddp-launch starts, which add up numbers by ddp-bench.
#include <ddp/error.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "doctor/child.hpp"

namespace ddp::doctor {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds limit = 30s;
constexpr const char* name = "two ranks";

// What the launcher says of the cause; else the last line.
std::string cause_in(const std::string& output) {
    std::istringstream lines(output);
    std::string last;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("ddp-launch:   error ")) return line;
        if (!line.empty()) last = line;
    }
    return last;
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

// "4 bytes in 0.41 us".
std::string describe(const nlohmann::json& row) {
    const auto bytes = row.at("bytes").get<std::uint64_t>();
    const std::string size =
        bytes < 1024 ? std::to_string(bytes) + " bytes" : std::to_string(bytes >> 20) + " MiB";
    char time[64];
    std::snprintf(time, sizeof time, " in %.3g us", row.at("time_us").get<double>());
    return size + time;
}

// Of ddp-bench's rows, a line each.
Findings judge(const std::string& file) {
    std::ifstream rows(file);
    std::string says = "their sums are right:";
    std::optional<double> share;  // of what memory allows, in the largest row
    int count = 0;
    for (std::string line; std::getline(rows, line); ++count) {
        const auto row = nlohmann::json::parse(line);
        says += (count > 0 ? ", " : " ") + describe(row);
        if (row.contains("floor_share")) share = row.at("floor_share").get<double>();
    }
    if (count == 0) return {{name, Level::fail, "they measured nothing", "run it again"}};
    if (!share) return {{name, Level::note, says + " (too little memory to say what is possible)"}};
    says +=
        " (" + std::to_string(static_cast<int>(100 * *share)) + " % of what memory here allows)";
    constexpr double little = 0.1;
    if (*share >= little) return {{name, Level::ok, says}};
    return {{name, Level::warn, says,
             "other work on these CPUs, a quota, or both ranks on one: look at processors above"}};
}

}  // namespace

Findings check_two_ranks(const std::string& folder) {
    const std::string launch = folder + "/ddp-launch";
    const std::string bench = folder + "/ddp-bench";
    for (const std::string& program : {launch, bench}) {
        if (::access(program.c_str(), X_OK) == 0) continue;
        return {{name, Level::fail, "there is no program " + program,
                 "ddp-doctor wants both beside itself; --no-ranks leaves this check out"}};
    }
    // Nothing is left behind, whatever becomes of this process.
    const base::UniqueFd memory(::memfd_create("ddp-doctor", MFD_CLOEXEC));
    if (!memory) throw SystemError("memory for the ranks' times", errno);
    const std::string rows =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.get());
    const std::vector<std::string> command{launch,        "--standalone", "--nproc_per_node=2",
                                           bench,         "all_reduce",   "--backend",
                                           "shm",         "--min-bytes",  "4",
                                           "--max-bytes", "4M",           "--factor",
                                           "1048576",     "--budget",     "0.1"};
    // With --floor it takes much memory, and more time.
    for (const bool measures_floor : {true, false}) {
        std::vector<std::string> words = command;
        if (measures_floor) words.emplace_back("--floor");
        words.insert(words.end(), {"--json", rows});
        const ProgramEnd end = run_program(words, limit, {"PET_", "DDP_"});
        if (end.exit_code == 0) return judge(rows);
        if (measures_floor) continue;
        return {{name, Level::fail, doctor::describe(end, limit) + ": " + cause_in(end.output),
                 "look at what this says: " + joined(command)}};
    }
    return {};
}

}  // namespace ddp::doctor
