// Jobs under others' daemons, on hosts made of namespaces; install-deps.sh --interop has unpacked
// them.
#pragma once

#include "launcher/hosts_fixture.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher::testing {

inline const std::string daemons = DDP_DAEMONS;
inline const std::string daemon_libraries = daemons + "/usr/lib/" DDP_DAEMON_LIBRARIES;

class DaemonsTest : public HostsTest {
protected:
    static constexpr int hosts = 3;

    void SetUp() override {
        HostsTest::SetUp();
        if (IsSkipped()) return;
        if (::geteuid() != 0) GTEST_SKIP() << "these daemons need root";
        if (!std::filesystem::exists(daemons + "/complete")) {
            const char* required = std::getenv("DDP_REQUIRE_INTEROP");
            if (required != nullptr && std::string(required) == "1") GTEST_FAIL() << "no daemons";
            GTEST_SKIP() << "no daemons: tools/install-deps.sh --interop fetches them";
        }
        world_ = std::make_unique<HostWorld>(hosts);
    }

    HostWorld& world() { return *world_; }
    const std::string& folder() const { return folder_; }  // of the test, the same on all hosts

    void run_daemon(int host, HostWorld::Words words, HostWorld::Words environment = {}) {
        daemons_.push_back(world_->run(host, std::move(words), std::move(environment)));
    }
    template <class Condition>
    static bool wait_until(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!condition()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return true;
    }
    bool nothing_runs(const std::string& comm) const {
        return wait_until([&] {
            for (int host = 1; host <= hosts; ++host) {
                if (world_->count_on(host, comm) > 0) return false;
            }
            return true;
        });
    }

private:
    const std::string folder_ = files_.path();
    std::unique_ptr<HostWorld> world_;
    std::vector<HostProgram> daemons_;  // they end before the world
};

}  // namespace ddp::launcher::testing
