// Every answer of the CUDA runtime that is known, and the line that is made of it.
#include "tensor/device/device_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace ddp::device {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct ProbeCase {
    const char* name;
    RuntimeAnswer answer;
    std::vector<std::string> words;  // of the reason
    friend std::ostream& operator<<(std::ostream& out, const ProbeCase& row) {
        return out << row.name;
    }
};

class DeviceProbe : public ::testing::TestWithParam<ProbeCase> {};

TEST_P(DeviceProbe, NamesTheReasonInOneLine) {
    const Probe probe = probe_of(GetParam().answer);
    EXPECT_EQ(probe.devices, 0);
    EXPECT_FALSE(probe.reason.empty());
    for (const std::string& word : GetParam().words) EXPECT_THAT(probe.reason, HasSubstr(word));
    EXPECT_THAT(probe.reason, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    Answers, DeviceProbe,
    ::testing::Values(
        ProbeCase{"NoDriver", {0, 13000, 35, 0}, {"no driver"}},
        ProbeCase{"NoDriverAndANumberThatWasNeverWritten", {0, 13000, 35, 7}, {"no driver"}},
        ProbeCase{"OldDriver", {12020, 13000, 35, 0}, {"CUDA 12.2", "needs 13.0", "update"}},
        ProbeCase{"Stub", {0, 13000, 34, 0}, {"stub"}},
        ProbeCase{"NoDevice", {13000, 13000, 100, 0}, {"no GPU", "CUDA_VISIBLE_DEVICES", "MIG"}},
        ProbeCase{"NoneWithoutError", {13000, 13000, 0, 0}, {"no GPU"}},
        ProbeCase{"Busy", {13000, 13000, 46, 0}, {"busy"}},
        ProbeCase{"NotReady", {13000, 13000, 802, 0}, {"not ready", "nvidia-fabricmanager"}},
        ProbeCase{"Mismatch", {13000, 13000, 803, 0}, {"different versions"}},
        ProbeCase{"Compatibility", {13000, 13000, 804, 0}, {"forward-compatibility"}},
        ProbeCase{"Mps", {13000, 13000, 805, 0}, {"MPS"}},
        ProbeCase{"Forked", {13000, 13000, 3, 0}, {"forked"}},
        ProbeCase{"Forbidden", {13000, 13000, 304, 0}, {"/dev/nvidia"}},
        ProbeCase{
            "Unknown", {13000, 13000, 999, 0, "unknown error"}, {"error 999, unknown error"}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ProbeOf, DevicesNeedsNoReason) {
    const Probe probe = probe_of({.driver = 13010, .runtime = 13000, .error = 0, .devices = 8});
    EXPECT_EQ(probe.devices, 8);
    EXPECT_EQ(probe.reason, "");
}

TEST(ProbeOf, ThisHostFindsDevicesOrSaysWhyNot) {
    const Probe probe = device_api().probe();
    EXPECT_EQ(probe.devices == 0, !probe.reason.empty()) << probe.reason;
}

}  // namespace
}  // namespace ddp::device
