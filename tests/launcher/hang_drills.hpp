// Programs of three ranks that go wrong in the known ways (drill_worker.cpp), and what is to be said
// of them.
#pragma once

#include "base/sanitizers.hpp"
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher::testing {

inline constexpr int drill_ranks = 3;

// "drill_worker.cpp:42", of the function of that name.
inline std::string line_of(const std::string& function) {
    std::ifstream source(DDP_TEST_DRILL_SOURCE);
    int number = 0;
    for (std::string line; std::getline(source, line);) {
        ++number;
        if (line.find("void " + function + "() { group_.") == line.npos) continue;
        return "drill_worker.cpp:" + std::to_string(number);
    }
    ADD_FAILURE() << "there is no " << function;
    return "";
}

struct Written {
    const char* function;
    const char* operation;
};
inline constexpr Written written[] = {{"sum", "all_reduce of 16 float32 (sum)"},
                                      {"copy", "broadcast of 16 float32 from rank 0"},
                                      {"meet", "barrier"}};
inline constexpr Written top_on_gpu{"top", "all_reduce of 16 float32 (max)"};  // instead of meet()

// The outermost call in a drill's stack; a sanitized one is built without lines.
#ifdef DDP_SANITIZES_ADDRESSES
inline constexpr const char* drill_main = "    main (ddp_test_drill_worker)\n";
#else
inline constexpr const char* drill_main = "    main (drill_worker.cpp:";
#endif

inline std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

// What hangs, and what ends by an error of all ranks.
enum class DrillOutcome : std::uint8_t { hang, mismatch };
struct Fault {
    const char* name;
    DrillOutcome outcome;
};
inline constexpr Fault faults[] = {
    {"missing", DrillOutcome::mismatch},   {"extra", DrillOutcome::mismatch},
    {"reordered", DrillOutcome::mismatch}, {"operation", DrillOutcome::mismatch},
    {"dtype", DrillOutcome::mismatch},     {"count", DrillOutcome::mismatch},
    {"root", DrillOutcome::mismatch},      {"stop", DrillOutcome::hang},
    {"loop", DrillOutcome::hang},          {"sleep", DrillOutcome::hang},
    {"posted", DrillOutcome::hang},
};

// Of those that this build has; nccl on GPUs that are not there, whose transfers are not seen.
inline std::vector<std::string> backends_of_one_host(const Fault& fault) {
    std::vector<std::string> backends{"shm", "gloo"};
    const bool is_transfer = std::string_view(fault.name) == "posted";
    if (*DDP_TEST_GPU_DRILL_WORKER != '\0' && !is_transfer) backends.emplace_back("nccl");
    return backends;
}

struct Drill {
    std::string backend = "shm";
    std::string fault = {};
    int rank = 1;
    int step = 40;
    int place = 0;

    static Drill by_chance(std::mt19937& random, const Fault& fault, std::string backend,
                           int most_steps) {
        return {.backend = std::move(backend),
                .fault = fault.name,
                .rank = static_cast<int>(random() % drill_ranks),
                .step = 20 + static_cast<int>(random() % static_cast<unsigned>(most_steps)),
                .place = static_cast<int>(random() % 3)};
    }
    std::vector<std::string> command() const {
        return {backend == "nccl" ? DDP_TEST_GPU_DRILL_WORKER : DDP_TEST_DRILL_WORKER,
                backend,
                fault,
                std::to_string(rank),
                std::to_string(step),
                std::to_string(place)};
    }
    // What the others wait in. A broadcast on GPUs ends without some of those that receive.
    const Written& call() const {
        const bool waits_in_it = backend != "nccl" || place == 0 || (place == 1 && rank == 0);
        return waits_in_it ? written[place] : top_on_gpu;
    }
    std::string name() const {
        return backend + " " + fault + " rank " + std::to_string(rank) + " step " +
               std::to_string(step) + " place " + std::to_string(place);
    }
};

inline int count(const std::string& text, std::string_view what) {
    int times = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; ++at) ++times;
    return times;
}

// The only report.json below the folder.
inline nlohmann::json report_below(const std::string& folder) {
    nlohmann::json report;
    int found = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.path().filename() != "report.json") continue;
        ++found;
        std::ifstream file(entry.path());
        report = nlohmann::json::parse(file);
    }
    EXPECT_EQ(found, 1);
    return report;
}

// With --on-hang=stop --hang-timeout=0: what the launcher, or that of the coordinator, has said.
inline void expect_explained(const Fault& fault, const Drill& drill, const std::string& err) {
    using ::testing::AllOf;
    using ::testing::HasSubstr;
    const std::string blamed = "ddp-launch: " + rank_name(drill.rank) + " (local rank ";
    if (fault.outcome == DrillOutcome::hang) {
        // A rank does not come: the others wait at a known line, and it is named.
        const std::string holds_up = rank_name(drill.rank) + " holds up ranks ";
        EXPECT_THAT(err,
                    AllOf(HasSubstr("ddp-launch: " + holds_up), HasSubstr(drill.call().operation),
                          HasSubstr(line_of(drill.call().function)),
                          HasSubstr("stopping the job (--on-hang=stop): SIGTERM now"),
                          HasSubstr(blamed), HasSubstr("hang     " + holds_up)));
        return;
    }
    // Ranks call different things: one of them what the others do not.
    std::string others;
    for (int rank = 0; rank < drill_ranks; ++rank) {
        if (rank != drill.rank) others += (others.empty() ? "" : ", ") + std::to_string(rank);
    }
    EXPECT_THAT(
        err, AllOf(HasSubstr(blamed), HasSubstr("hang     the ranks have called different things"),
                   HasSubstr("  " + rank_name(drill.rank) + ": "),
                   HasSubstr("  ranks " + others + ": ")));
    EXPECT_GE(count(err, "(drill_worker.cpp:"), 2) << err;
}

}  // namespace ddp::launcher::testing
