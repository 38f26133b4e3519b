// Which Python is taken, in made-up environments.
#include "launcher/plan/interpreter.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/parse_words.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace ddp::launcher {
namespace {

namespace fs = std::filesystem;
using testing::Environment;

class Interpreter : public ::testing::Test {
protected:
    std::string make_program(const std::string& name) const {
        const std::string path = folder_.path() + "/" + name;
        fs::create_directories(fs::path(path).parent_path());
        std::ofstream(path) << "#!/bin/sh\n";
        EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
        return path;
    }
    void make_environment(const std::string& name) const {
        fs::create_directories(folder_.path() + "/" + name);
        std::ofstream(folder_.path() + "/" + name + "/pyvenv.cfg") << "home = /usr/bin\n";
    }
    static std::string found(const std::string& called_as, const Environment& environment) {
        return find_interpreter(called_as, testing::lookup_in(environment));
    }
    std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

    testing::TemporaryFolder folder_;
};

TEST_F(Interpreter, IsThatOfPathWhenNothingElseIsKnown) {
    EXPECT_EQ(found("ddp-launch", {{"PATH", folder_.path()}}), "python3");
    EXPECT_EQ(found("", {}), "python3");
}

TEST_F(Interpreter, BesideTheLauncherIsTakenInAVirtualEnvironment) {
    make_environment("venv");
    const std::string launcher = make_program("venv/bin/ddp-launch");
    EXPECT_EQ(found(launcher, {}), "python3") << "it has none";
    const std::string python = make_program("venv/bin/python");
    EXPECT_EQ(found(launcher, {}), python);
    EXPECT_EQ(found(launcher, {}), python);
    const std::string python3 = make_program("venv/bin/python3");
    EXPECT_EQ(found(launcher, {}), python3);
    EXPECT_EQ(found("ddp-launch", {{"PATH", "/nowhere:" + path("venv/bin")}}), python3);
}

TEST_F(Interpreter, BesideTheLauncherIsTakenThoughTheLauncherIsALink) {
    make_environment("venv");
    const std::string python3 = make_program("venv/bin/python3");
    fs::create_symlink(make_program("opt/bin/ddp-launch"), path("venv/bin/ddp-launch"));
    EXPECT_EQ(found(path("venv/bin/ddp-launch"), {}), python3);
}

TEST_F(Interpreter, OfCondaIsOneToo) {
    fs::create_directories(path("conda/conda-meta"));
    const std::string python3 = make_program("conda/bin/python3");
    EXPECT_EQ(found(make_program("conda/bin/ddp-launch"), {}), python3);
}

// As /usr/bin is.
TEST_F(Interpreter, BesideALauncherOutsideAnEnvironmentIsNotPreferred) {
    make_program("usr/bin/python3");
    const std::string launcher = make_program("usr/bin/ddp-launch");
    EXPECT_EQ(found(launcher, {}), "python3");
    const std::string active = make_program("active/bin/python3");
    EXPECT_EQ(found(launcher, {{"VIRTUAL_ENV", path("active")}}), active);
}

TEST_F(Interpreter, OfTheLaunchersEnvironmentWinsOverTheActiveOne) {
    make_environment("venv");
    const std::string python3 = make_program("venv/bin/python3");
    make_program("active/bin/python3");
    const std::string launcher = make_program("venv/bin/ddp-launch");
    EXPECT_EQ(found(launcher, {{"VIRTUAL_ENV", path("active")}}), python3);
}

TEST_F(Interpreter, NamedByTheVariableWinsAlways) {
    make_environment("venv");
    make_program("venv/bin/python3");
    const std::string launcher = make_program("venv/bin/ddp-launch");
    EXPECT_EQ(found(launcher, {{"PYTHON_EXEC", "pypy3"}, {"VIRTUAL_ENV", "/v"}}), "pypy3");
    EXPECT_EQ(found("ddp-launch", {{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", ""}}), "python3");
}

// The launcher itself, with a stand-in for Python that says how it was called.
TEST_F(Interpreter, RunsTheScriptsOfALauncherInAnEnvironment) {
    make_environment("venv");
    std::ofstream(make_program("venv/bin/python3")) << "#!/bin/sh\necho \"$0\" \"$@\"\n";
    fs::create_symlink(DDP_LAUNCH, path("venv/bin/ddp-launch"));
    std::ofstream(path("train.py")) << "\n";
    std::ofstream(path("train")) << "\n";
    const std::string python3 = path("venv/bin/python3");
    const testing::LaunchSettings settings{.environment = {"PATH=/usr/bin:/bin", "PYTHON_EXEC="},
                                           .program = path("venv/bin/ddp-launch")};
    const testing::TemporaryFolder work;
    testing::Launch script(work, {path("train.py"), "--lr", "1"}, settings);
    EXPECT_EQ(script.wait().out, python3 + " -u " + path("train.py") + " --lr 1\n");
    testing::Launch named(work, {"--run-path", path("train")}, settings);
    EXPECT_EQ(named.wait().out, python3 + " -u " + path("train") + "\n");
}

}  // namespace
}  // namespace ddp::launcher
