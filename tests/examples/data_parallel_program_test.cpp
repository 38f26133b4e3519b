// 04_data_parallel prints the tutorial's lines, for each number of devices, and its table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "examples/expected_output.hpp"
#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;
using testing::HasSubstr;
using Lines = std::vector<std::string>;

ProgramResult run_on(int devices, const Command& options) {
    Command command{example("04_data_parallel")};
    command.insert(command.end(), options.begin(), options.end());
    return run_programs({{command, {{"DDP_CPU_DEVICES", std::to_string(devices)}}}}).front();
}

// Replicas print in any order: larger pieces first, which is the order of the devices.
Lines with_replicas_sorted(Lines lines) {
    const auto is_replica = [](const std::string& line) { return line.starts_with("In Model"); };
    for (auto at = lines.begin(); at != lines.end();) {
        const auto first = std::find_if(at, lines.end(), is_replica);
        at = std::find_if_not(first, lines.end(), is_replica);
        std::sort(first, at, std::greater<>{});
    }
    return lines;
}

// What the program promises for 3 devices, with the pieces of other ones: of 30 rows, and of 10.
Lines expected_with(const std::vector<int>& of_30, const std::vector<int>& of_10) {
    const auto replicas = [](const std::vector<int>& rows) {
        Lines lines;
        for (const int count : rows) {
            const std::string n = std::to_string(count);
            lines.push_back("In Model: input size [" + n + ", 5] output size [" + n + ", 2]");
        }
        return lines;
    };
    Lines lines;
    if (of_30.size() > 1)
        lines.push_back("Let's use " + std::to_string(of_30.size()) + " devices!");
    for (int batch = 0; batch < 4; ++batch) {
        std::ranges::copy(replicas(batch < 3 ? of_30 : of_10), std::back_inserter(lines));
        const std::string n = batch < 3 ? "30" : "10";
        lines.push_back("Outside: input size [" + n + ", 5] output_size [" + n + ", 2]");
    }
    const Lines promised = expected_output("04_data_parallel");
    lines.insert(lines.end(), promised.end() - 2, promised.end());
    return lines;
}

void expect_lines(const ProgramResult& result, const Lines& expected) {
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(with_replicas_sorted(lines_of(result.out)), expected);
}

}  // namespace

TEST(DataParallelProgram, PrintsWhatItPromises) {
    expect_lines(run_on(3, {}), expected_output("04_data_parallel"));
}

TEST(DataParallelProgram, PrintsTheTutorialsLinesForEachNumberOfDevices) {
    expect_lines(run_on(1, {}), expected_with({30}, {10}));
    expect_lines(run_on(2, {}), expected_with({15, 15}, {5, 5}));
    expect_lines(run_on(8, {}), expected_with({4, 4, 4, 4, 4, 4, 4, 2}, {2, 2, 2, 2, 2}));
}

TEST(DataParallelProgram, UsesTheDevicesThatItIsGiven) {
    const auto two = expected_with({15, 15}, {5, 5});
    expect_lines(run_on(8, {"--device-ids", "0,1"}), two);
    expect_lines(run_on(8, {"--device", "cpu", "--device-ids", "6,3"}), two);
}

TEST(DataParallelProgram, ShowsThatTheLossInTheReplicasBalancesMemory) {
    const auto result = run_on(4, {"--memory"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 5U) << result.out;
    std::vector<double> gathered, in_replicas;
    for (std::size_t i = 1; i < lines.size(); ++i) {
        std::istringstream line(lines[i]);
        std::string device;
        ASSERT_TRUE(line >> device >> gathered.emplace_back() >> in_replicas.emplace_back());
    }
    EXPECT_GT(gathered.front(), 2.5 * gathered.back());
    EXPECT_LT(in_replicas.front(), 1.5 * in_replicas.back());
}

TEST(DataParallelProgram, SaysWhatItDoesNotUnderstand) {
    for (const auto& [options, message] : std::vector<std::pair<Command, std::string>>{
             {{"--device-ids", "0,x"}, "numbers such as 0,1, not '0,x'"},
             {{"--device-ids", "0,"}, "numbers such as 0,1, not '0,'"},
             {{"--device-ids", "0,2"}, "device_ids has 2, but the devices are 0 to 1"},
             {{"--device", "gpu"}, "--device: auto, cpu or cuda, not \"gpu\""},
             {{"--devices"}, "unknown option '--devices'"}}) {
        const auto result = run_on(2, options);
        EXPECT_EQ(result.exit_code, 1);
        EXPECT_THAT(result.err, HasSubstr(message));
        EXPECT_EQ(result.out, "");
    }
}
