// The proof: two ranks that ddp-launch starts, which add up numbers by ddp-bench.
#include <ddp/error.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "doctor/checks.hpp"
#include "doctor/child.hpp"

namespace ddp::doctor {
namespace {

using namespace std::chrono_literals;

constexpr auto limit = 60s;
constexpr const char* name = "two ranks";

class Folder {
public:
    Folder() {
        path_ = (std::filesystem::temp_directory_path() / "ddp-doctor-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr) throw SystemError("making " + path_, errno);
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string file(const char* inside) const { return path_ + "/" + inside; }

private:
    std::string path_;
};

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
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
    double share = 1;  // of what memory allows, in the largest row
    int count = 0;
    for (std::string line; std::getline(rows, line); ++count) {
        const auto row = nlohmann::json::parse(line);
        says += (count > 0 ? ", " : " ") + describe(row);
        share = row.value("floor_share", 1.0);
    }
    if (count == 0) return {{name, Level::fail, "they measured nothing", "run it again"}};
    says += " (" + std::to_string(static_cast<int>(100 * share)) + " % of what memory here allows)";
    constexpr double little = 0.1;
    if (share >= little) return {{name, Level::ok, says}};
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
    const Folder results;
    const std::string rows = results.file("rows.json");
    const ProgramEnd end = run_program(
        {launch, "--nproc_per_node=2", bench, "all_reduce", "--backend", "shm", "--min-bytes", "4",
         "--max-bytes", "4M", "--factor", "1048576", "--budget", "0.1", "--floor", "--json", rows},
        limit);
    if (end.exit_code == 0) return judge(rows);
    const std::string how = end.exit_code ? "exit code " + std::to_string(*end.exit_code) + ": "
                                          : "not done in " + std::to_string(limit.count()) + " s: ";
    return {{name, Level::fail, how + last_line(end.output),
             launch + " --nproc_per_node=2 " + bench + " all_reduce tells more"}};
}

}  // namespace ddp::doctor
