// The house rules that a compiler does not check, read off the sources: a room includes only rooms
// on lower floors, public headers show no foreign type, what is not for users lies in detail, and
// files stay small.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path root = DDP_SOURCE_DIR;

const std::map<std::string, int> floors = {
    {"base", 0},        {"contract", 1},      {"store", 2},
    {"tensor", 2},      {"launch", 3},        {"backends", 3},
    {"data", 3},        {"process_group", 4}, {"reducer", 5},
    {"checkpoint", 5},  {"data_parallel", 5}, {"testing", 6},
    {"torch", 6},       {"launcher", 3},      {"sync_batch_norm", 5},
    {"c_interface", 6},
};
// Rooms of the launcher, between each other.
const std::map<std::string, int> launcher_floors = {
    {"process", 0}, {"options", 0}, {"channel", 1}, {"plan", 1},     {"console", 2}, {"worker", 2},
    {"stacks", 2},  {"report", 3},  {"verdict", 4}, {"logs", 4},     {"hosts", 5},   {"agent", 7},
    {"front", 8},   {"inspect", 5}, {"metrics", 6}, {"timeline", 4},
};
// The room that owns each public header: including it counts as including the room.
const std::map<std::string, std::string> owners = {
    {"error.hpp", "base"},
    {"export.hpp", "base"},
    {"master_address.hpp", "base"},
    {"version.hpp", "base"},
    {"shard.hpp", "base"},
    {"stream.hpp", "base"},
    {"worker_env.hpp", "contract"},
    {"run_worker.hpp", "contract"},
    {"launch.hpp", "launch"},
    {"store.hpp", "store"},
    {"device.hpp", "tensor"},
    {"shape.hpp", "tensor"},
    {"tensor.hpp", "tensor"},
    {"tensor_functions.hpp", "tensor"},
    {"tensor_view.hpp", "tensor"},
    {"parameter.hpp", "tensor"},
    {"memory.hpp", "tensor"},
    {"data_loader.hpp", "data"},
    {"dataset.hpp", "data"},
    {"distributed_sampler.hpp", "data"},
    {"collate.hpp", "data"},
    {"data_loader_options.hpp", "data"},
    {"detail/epoch_passes.hpp", "data"},
    {"detail/loader_base.hpp", "data"},
    {"random_sampler.hpp", "data"},
    {"randperm_era.hpp", "data"},
    {"backend.hpp", "backends"},
    {"call_site.hpp", "base"},
    {"collective_options.hpp", "process_group"},
    {"init_process_group.hpp", "process_group"},
    {"dtype.hpp", "contract"},
    {"half.hpp", "contract"},
    {"reduce_op.hpp", "contract"},
    {"work.hpp", "process_group"},
    {"process_group.hpp", "process_group"},
    {"nccl.hpp", "process_group"},
    {"comm_hook.hpp", "reducer"},
    {"reducer.hpp", "reducer"},
    {"reducer_options.hpp", "reducer"},
    {"distributed_data_parallel.hpp", "reducer"},
    {"module.hpp", "data_parallel"},
    {"scatter.hpp", "data_parallel"},
    {"device_threads.hpp", "data_parallel"},
    {"replicas.hpp", "data_parallel"},
    {"data_parallel_options.hpp", "data_parallel"},
    {"data_parallel.hpp", "data_parallel"},
    {"sync_batch_norm.hpp", "sync_batch_norm"},
    {"checkpoint.hpp", "checkpoint"},
    {"state_dict.hpp", "checkpoint"},
    {"testing.hpp", "testing"},
    {"testing_ranks.hpp", "testing"},
    {"ddp.hpp", "testing"},
    {"torch.hpp", "torch"},
};

// Files below 30 lines that have a reason. A header needs none when the source of its name is
// longer: little to know of much.
constexpr std::size_t short_lines = 30;
const std::map<std::string, std::string> short_files = {
    {"launcher/front/stranger_watch.cpp", "the source of its header"},
    {"launcher/main.cpp", "main alone, so that tests link all else"},
    {"launcher/process/exit_status.hpp", "contract's names in the launcher's namespace"},
    {"runtime/backends/gloo/gloo_absent.cpp", "the variant of a build without Gloo"},
    {"runtime/backends/gloo/transport/ucx_absent.cpp", "the variant of a build without UCX"},
    {"runtime/backends/gloo/slots.hpp", "the numbers that five sources must not use twice"},
    {"runtime/backends/hierarchical/hierarchical_absent.cpp",
     "the variant of a build without Gloo"},
    {"runtime/backends/hierarchical/make_hierarchical.cpp", "the other variant"},
    {"runtime/backends/hierarchical/make_hierarchical.hpp", "the door to both"},
    {"runtime/backends/nccl/nccl_absent.cpp", "the variant of a build without CUDA"},
    {"runtime/backends/reduction/reduce_avx2_check.cpp", "compiled for any processor"},
    {"runtime/backends/reduction/reduce_baseline.hpp", "what two variants of a source share"},
    {"runtime/backends/reduction/reduce_sse2.cpp", "the variant of every x86-64 processor"},
    {"runtime/backends/shm/call/deferred_completion.cpp", "the source of its header"},
    {"runtime/backends/shm/transfer/chunk_places.cpp", "the source of its header"},
    {"runtime/base/allocate.cpp", "one system call, for two rooms"},
    {"runtime/base/allocate.hpp", "one system call, for two rooms"},
    {"runtime/base/deadline.cpp", "the source of its header"},
    {"runtime/base/error.cpp", "the home of the public exceptions' type information"},
    {"runtime/base/pause_cpu.hpp", "one instruction, for two rooms"},
    {"runtime/base/printable.cpp", "one function, for several rooms and the launcher"},
    {"runtime/base/printable.hpp", "one function, for several rooms and the launcher"},
    {"runtime/base/process/background_thread.cpp", "one function, for several rooms"},
    {"runtime/base/process/background_thread.hpp", "one function, for several rooms"},
    {"runtime/base/random.cpp", "one system call, for several rooms"},
    {"runtime/base/random.hpp", "one system call, for several rooms"},
    {"runtime/base/sanitizers.hpp", "two macros, for the launcher and tests"},
    {"runtime/base/unique_fd.cpp", "keeps the system's headers out of its header"},
    {"runtime/base/version.cpp", "the version that was linked, not that of the headers"},
    {"runtime/contract/exit_code.hpp", "numbers that worker and launcher agree on"},
    {"runtime/data/epoch_passes.cpp", "keeps the log out of its installed header"},
    {"runtime/launch/launch.cpp", "the room's public face"},
    {"runtime/process_group/call_source.hpp", "for the rooms above, which need no more of this"},
    {"runtime/process_group/operation.hpp", "what two queues have in common"},
    {"runtime/store/admission/store_peers.hpp", "an option of the launcher, without the rest"},
    {"runtime/store/store.cpp", "the home of the public class's virtual table"},
    {"runtime/tensor/device/device_api.cpp", "in all builds; the built-in API is another file"},
    {"runtime/tensor/device/trace_range.cpp", "the only source that reads NVTX's headers"},
    {"runtime/tensor/device/trace_range.hpp", "the only source that reads NVTX's headers"},
};

std::vector<fs::path> sources_below(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
        const std::string extension = entry.path().extension();
        if (extension == ".hpp" || extension == ".cpp" || extension == ".cu") {
            files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<std::string> lines_of(const fs::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// The rooms that a file's include lines name.
std::vector<std::string> included_rooms(const fs::path& file) {
    static const std::regex internal(R"(^#include "([a-z_]+)/.*")");
    static const std::regex own_public(R"(^#include <ddp/((torch/)?(detail/)?[a-z_]+\.hpp)>)");
    std::vector<std::string> rooms;
    for (const std::string& line : lines_of(file)) {
        std::smatch match;
        if (std::regex_search(line, match, internal)) rooms.push_back(match[1]);
        if (std::regex_search(line, match, own_public)) {
            if (match[2].matched) {
                rooms.push_back("torch");
                continue;
            }
            const auto owner = owners.find(match[1]);
            EXPECT_NE(owner, owners.end()) << file << ": no room owns " << match[1];
            if (owner != owners.end()) rooms.push_back(owner->second);
        }
    }
    return rooms;
}

std::string room_of(const fs::path& file) {
    const fs::path relative = fs::relative(file, root);
    auto part = relative.begin();
    if (*part == "launcher") return "launcher";
    if (*part == "include") {
        const std::string header = fs::relative(file, root / "include/ddp");
        if (header.starts_with("torch/")) return "torch";
        const auto owner = owners.find(header);
        return owner == owners.end() ? "(none)" : owner->second;
    }
    return *++part;
}

TEST(Floors, ARoomIncludesOnlyRoomsOnLowerFloors) {
    std::size_t checked = 0;
    for (const char* folder : {"include", "runtime", "launcher"}) {
        for (const fs::path& file : sources_below(folder)) {
            const std::string room = room_of(file);
            ASSERT_TRUE(floors.contains(room)) << file << ": unknown room " << room;
            for (const std::string& included : included_rooms(file)) {
                ++checked;
                if (included == room) continue;
                ASSERT_TRUE(floors.contains(included)) << file << " includes " << included;
                EXPECT_LT(floors.at(included), floors.at(room))
                    << fs::relative(file, root) << " includes " << included;
            }
        }
    }
    EXPECT_GT(checked, 100U) << "the include lines were not found";
}

TEST(Floors, TheLauncherUsesContractStoreAndBaseOnly) {
    for (const fs::path& file : sources_below("launcher")) {
        for (const std::string& included : included_rooms(file)) {
            const bool allowed = included == "launcher" || included == "contract" ||
                                 included == "store" || included == "base";
            EXPECT_TRUE(allowed) << fs::relative(file, root) << " includes " << included;
        }
    }
}

TEST(Floors, ALauncherRoomIncludesOnlyRoomsOnLowerFloors) {
    const std::regex internal(R"(^#include "launcher/([a-z_]+)/.*")");
    std::size_t checked = 0;
    for (const fs::path& file : sources_below("launcher")) {
        const fs::path in_launcher = fs::relative(file, root / "launcher");
        const std::string room = *in_launcher.begin();  // a room may have folders
        if (room == in_launcher) {
            EXPECT_EQ(room, "main.cpp") << "belongs in a room";
            continue;
        }
        ASSERT_TRUE(launcher_floors.contains(room)) << file << ": unknown room " << room;
        for (const std::string& line : lines_of(file)) {
            std::smatch match;
            if (!std::regex_search(line, match, internal) || match[1] == room) continue;
            ++checked;
            ASSERT_TRUE(launcher_floors.contains(match[1])) << file << " includes " << line;
            EXPECT_LT(launcher_floors.at(match[1]), launcher_floors.at(room))
                << fs::relative(file, root) << " includes " << line;
        }
    }
    EXPECT_GT(checked, 50U) << "the include lines were not found";
}

// All that a reader of the folder sees: lists and pages, too.
TEST(Floors, NoFolderIsCrowded) {
    constexpr std::size_t most = 30;
    std::map<fs::path, std::size_t> files;
    for (const char* folder : {"runtime", "launcher"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            if (entry.is_regular_file()) ++files[entry.path().parent_path()];
        }
    }
    EXPECT_GT(files.size(), 20U) << "the folders were not found";
    for (const auto& [folder, count] : files) EXPECT_LE(count, most) << fs::relative(folder, root);
}

TEST(Floors, PublicHeadersShowNoForeignType) {
    const std::regex foreign(R"(#include [<"](spdlog|fmt|nlohmann|boost|nccl|cuda|gloo))");
    for (const fs::path& file : sources_below("include")) {
        for (const std::string& line : lines_of(file)) {
            EXPECT_FALSE(std::regex_search(line, foreign)) << file << ": " << line;
            const bool gtest = line.find("gtest/") != std::string::npos;
            EXPECT_TRUE(!gtest || file.filename() == "testing.hpp") << file;
            const bool torch = std::regex_search(line, std::regex("#include <(torch|c10|ATen)/"));
            EXPECT_TRUE(!torch || room_of(file) == "torch") << file;
        }
    }
}

// A header says "Not for users" in its first lines if and only if it lies in a folder detail.
TEST(Floors, HeadersThatAreNotForUsersLieInDetail) {
    std::size_t checked = 0;
    for (const fs::path& file : sources_below("include")) {
        std::string opening;
        for (const std::string& line : lines_of(file)) {
            if (!line.starts_with("//")) break;
            opening += line.substr(2);
        }
        const bool detail = file.parent_path().filename() == "detail";
        checked += detail ? 1 : 0;
        EXPECT_EQ(detail, opening.find("Not for users") != std::string::npos)
            << fs::relative(file, root);
    }
    EXPECT_GT(checked, 10U) << "the headers were not found";
}

TEST(Floors, OnlyTheLogUsesSpdlogAndOneFileStartsProcesses) {
    for (const char* folder : {"include", "runtime", "launcher"}) {
        for (const fs::path& file : sources_below(folder)) {
            for (const std::string& line : lines_of(file)) {
                if (line.starts_with("#include <spdlog/")) {
                    EXPECT_EQ(fs::relative(file, root), "runtime/base/log.cpp");
                }
                if (line.starts_with("#include <boost/process/")) {
                    EXPECT_EQ(file.filename().string().find("worker_process"), 0U) << file;
                }
            }
        }
    }
}

std::size_t line_count(const fs::path& file) {
    return fs::exists(file) ? lines_of(file).size() : 0;
}

// A file of a few lines is one more name to know: it says more than its neighbour could, or joins it.
TEST(Floors, ShortFilesHaveAReason) {
    std::size_t found = 0;
    for (const char* folder : {"runtime", "launcher"}) {
        for (const fs::path& file : sources_below(folder)) {
            const std::string name = fs::relative(file, root);
            if (file.extension() == ".cu" || line_count(file) >= short_lines) continue;
            const bool listed = short_files.contains(name);
            found += listed ? 1 : 0;
            const bool opens_more =
                file.extension() == ".hpp" &&
                line_count(fs::path(file).replace_extension(".cpp")) >= short_lines;
            EXPECT_TRUE(listed || opens_more) << name << " is short: join it to its neighbour";
            EXPECT_FALSE(listed && opens_more) << name << " is a header that needs no entry";
        }
    }
    EXPECT_EQ(found, short_files.size()) << "short_files has a file that is not short, or is gone";
}

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

// Whether the file is named by a CMakeLists.txt of its folder or of one above it.
bool is_in_cmake(const fs::path& file) {
    for (fs::path folder = file.parent_path(); folder != root; folder = folder.parent_path()) {
        const std::string name = file.lexically_relative(folder);
        const std::string lists = text_of(folder / "CMakeLists.txt");
        for (std::size_t at = lists.find(name); at != std::string::npos;
             at = lists.find(name, at + 1)) {
            if (std::string(" \n(/").find(lists[at - 1]) != std::string::npos) return true;
        }
    }
    return false;
}

// One that is not named is not run, and nobody misses it.
TEST(Floors, EveryTestIsNamedInCMake) {
    std::size_t tests = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root / "tests")) {
        if (entry.path().filename().string().find("_test.") == std::string::npos) continue;
        ++tests;
        EXPECT_TRUE(is_in_cmake(entry.path())) << entry.path() << " is in no CMakeLists.txt";
    }
    EXPECT_GT(tests, 100U);
    EXPECT_FALSE(is_in_cmake(root / "tests/store/store_tests_test.cpp"));
}

TEST(Floors, FilesStaySmall) {
    for (const char* folder : {"include", "runtime", "launcher", "examples"}) {
        for (const fs::path& file : sources_below(folder)) {
            const auto lines = lines_of(file);
            const std::size_t limit = file.extension() == ".hpp" ? 150 : 500;
            EXPECT_LE(lines.size(), limit) << fs::relative(file, root);
            for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << file << line;
            EXPECT_TRUE(file.extension() != ".hpp" || lines.size() < 3 ||
                        std::find(lines.begin(), lines.end(), "#pragma once") != lines.end())
                << file;
        }
    }
}

}  // namespace
