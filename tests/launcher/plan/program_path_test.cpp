// Programs that are there, not there, and not executable.
#include "launcher/plan/program_path.hpp"

#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

std::string make_file(const std::string& path, mode_t mode,
                      const std::string& text = "#!/bin/sh\n") {
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
}

class FindProgram : public ::testing::Test {
protected:
    std::string make(const std::string& name, mode_t mode) {
        return make_file(folder_.path() + "/" + name, mode);
    }
    testing::TemporaryFolder folder_;
};

TEST_F(FindProgram, ANameIsLookedUpAlongThePath) {
    const std::string path = make("train", 0755);
    const Program found = find_program("train", "/nonexistent::" + folder_.path());
    EXPECT_EQ(found.path, path);
    EXPECT_EQ(found.problem, "");
}

TEST_F(FindProgram, ANameWithASlashIsTakenAsItIs) {
    const std::string path = make("train", 0755);
    EXPECT_EQ(find_program(path, "").path, path);
    EXPECT_EQ(find_program(path, "").problem, "");
}

TEST_F(FindProgram, ANotExecutableFileOnThePathIsPassedOverForALaterOne) {
    make("train", 0644);
    const testing::TemporaryFolder later;
    make_file(later.path() + "/train", 0755);
    const Program found = find_program("train", folder_.path() + ":" + later.path());
    EXPECT_EQ(found.path, later.path() + "/train");
    EXPECT_EQ(find_program("train", folder_.path()).exit_code, 126);
}

TEST_F(FindProgram, WhatDoesNotExistIs127WithTheNearestName) {
    make("train", 0755);
    const Program found = find_program(folder_.path() + "/trian", "");
    EXPECT_EQ(found.exit_code, 127);
    EXPECT_THAT(found.problem, HasSubstr("not found; did you mean " + folder_.path() + "/train?"));
    const Program on_path = find_program("trian", folder_.path());
    EXPECT_EQ(on_path.exit_code, 127);
    EXPECT_THAT(on_path.problem, HasSubstr("not found in PATH; did you mean train?"));
    EXPECT_EQ(find_program("", folder_.path()).exit_code, 127);
}

TEST_F(FindProgram, AScriptWithoutTheBitIs126AndSaysChmod) {
    const std::string script = make("script", 0644);
    const Program found = find_program(script, "");
    EXPECT_EQ(found.exit_code, 126);
    EXPECT_THAT(found.problem, HasSubstr("a script without the x bit: chmod +x " + script));
    const Program data = find_program(make_file(folder_.path() + "/data", 0644, "1,2\n"), "");
    EXPECT_EQ(data.exit_code, 126);
    EXPECT_THAT(data.problem, HasSubstr("not executable"));
}

TEST_F(FindProgram, AFolderIs126) {
    const Program found = find_program(folder_.path() + "/", "");
    EXPECT_EQ(found.exit_code, 126);
    EXPECT_THAT(found.problem, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace ddp::launcher
