// Tests for a real GPU, which are skipped where there is none, or fail there with DDP_REQUIRE_GPU=1.
#pragma once

#include "tensor/device/device_api.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace ddp::testing {

class NeedsGpu : public ::testing::Test {
protected:
    void SetUp() override {
        const device::Probe probe = device::device_api().probe();
        if (probe.devices > 0) return;
        const char* const required = std::getenv("DDP_REQUIRE_GPU");
        if (required != nullptr && std::string(required) == "1") {
            FAIL() << "DDP_REQUIRE_GPU=1, but: " << probe.reason;
        }
        GTEST_SKIP() << probe.reason;
    }
};

}  // namespace ddp::testing
