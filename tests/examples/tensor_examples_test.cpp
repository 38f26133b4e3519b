// 06_move_tensors and 07_two_devices print what their heads promise, and say what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/expected_output.hpp"
#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;
using testing::HasSubstr;

ProgramResult run_on(const std::string& cpu_devices, const Command& command) {
    return run_programs({{command, {{"DDP_CPU_DEVICES", cpu_devices}}}}).front();
}

TEST(MoveTensorsExample, PrintsWhatItsHeadPromises) {
    expect_output(
        run_on("2", {example("06_move_tensors"), "--max-bytes", "16K"}),
        expected_output("06_move_tensors", "expected, with cuda:0 in place of cpu:1 on a GPU"));
}

TEST(MoveTensorsExample, SaysWhatItNeeds) {
    const auto one = run_on("1", {example("06_move_tensors"), "--device", "cpu"});
    EXPECT_EQ(one.exit_code, 1);
    EXPECT_THAT(one.err, HasSubstr("DDP_CPU_DEVICES=2 makes two of it"));
    const auto bad = run_on("2", {example("06_move_tensors"), "--max-bytes", "16G"});
    EXPECT_EQ(bad.exit_code, 1);
    EXPECT_THAT(bad.err, HasSubstr("64K or 256M, not \"16G\""));
    const auto unknown = run_on("2", {example("06_move_tensors"), "--pinned"});
    EXPECT_THAT(unknown.err, HasSubstr("what is --pinned?"));
}

TEST(TwoDevicesExample, PrintsWhatItsHeadPromises) {
    expect_output(run_on("2", {example("07_two_devices")}),
                  expected_output("07_two_devices", "expected with two devices"));
    expect_output(run_on("1", {example("07_two_devices"), "--device", "cpu"}),
                  expected_output("07_two_devices", "expected with one device"));
}

TEST(TwoDevicesExample, RefusesOtherDevices) {
    const auto bad = run_on("2", {example("07_two_devices"), "--device", "tpu"});
    EXPECT_EQ(bad.exit_code, 1);
    EXPECT_THAT(bad.err, HasSubstr("--device: auto, cpu or cuda, not \"tpu\""));
}

}  // namespace
