// Groups as files below a folder of the test's own.
#include "base/process/cgroup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ddp::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Cgroup : public ::testing::Test {
protected:
    Cgroup() {
        std::string folder = ::testing::TempDir() + "/ddp-cgroup-XXXXXX";
        root_ = ::mkdtemp(folder.data());
    }
    ~Cgroup() override { std::filesystem::remove_all(root_); }
    std::string mount(const std::string& below = "") const {
        return root_ + "/sys/fs/cgroup" + below;
    }
    void write_list(const std::string& process, const std::string& text) const {
        std::filesystem::create_directories(root_ + "/proc/" + process);
        std::ofstream(root_ + "/proc/" + process + "/cgroup") << text;
    }

    std::string root_;
};

TEST_F(Cgroup, TellsThoseOfTheSecondVersionUpToTheMount) {
    write_list("self", "0::/a/b\n");
    EXPECT_THAT(
        cgroups_of("self", "cpu", root_),
        ElementsAre(ElementsAre(mount("/a/b"), mount("/a"), mount()),
                    ElementsAre(mount("/unified/a/b"), mount("/unified/a"), mount("/unified"))));
}

TEST_F(Cgroup, TellsThoseOfTheFirstVersionThatTheControllerHas) {
    write_list("17", "4:cpuset:/c\n3:cpu,cpuacct:/a\n2:name=systemd:/cpu\n");
    EXPECT_THAT(cgroups_of("17", "cpu", root_),
                ElementsAre(ElementsAre(mount("/cpu/a"), mount("/cpu"))));
    EXPECT_THAT(cgroups_of("17", "cpuacct", root_),
                ElementsAre(ElementsAre(mount("/cpuacct/a"), mount("/cpuacct"))));
}

TEST_F(Cgroup, BearsALineThatIsNone) {
    write_list("self", "nonsense\n::\n0:cpu:no-path\n1:cpu:/\n0::");
    EXPECT_THAT(cgroups_of("self", "cpu", root_), ElementsAre(ElementsAre(mount("/cpu"))));
    EXPECT_THAT(cgroups_of("18", "cpu", root_), IsEmpty());
}

}  // namespace
}  // namespace ddp::base
