// The file is there whole, is its owner's alone, and whatever lies at its place or beside it is
// replaced or left, never followed.
#include "base/replace_file.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddp::base {
namespace {

namespace fs = std::filesystem;

class ReplaceFile : public testing::Test {
protected:
    ReplaceFile() {
        std::string name = (fs::temp_directory_path() / "ddp-replace-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~ReplaceFile() override { fs::remove_all(folder_); }

    std::string path(const char* name) const { return folder_ + "/" + name; }
    static std::string text_of(const std::string& file) {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    std::ptrdiff_t files() const {
        return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
    }

private:
    std::string folder_;
};

TEST_F(ReplaceFile, TheNewOneIsWholeAndItsOwnersAlone) {
    ASSERT_EQ(replace_file(path("f"), "first"), 0);
    ASSERT_EQ(replace_file(path("f"), "second"), 0);
    EXPECT_EQ(text_of(path("f")), "second");
    struct stat status {};
    ASSERT_EQ(::stat(path("f").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, ALinkAtItsPlaceIsReplacedAndNotFollowed) {
    std::ofstream(path("target")) << "keep";
    ASSERT_EQ(::symlink(path("target").c_str(), path("f").c_str()), 0);
    ASSERT_EQ(replace_file(path("f"), "new"), 0);
    EXPECT_EQ(text_of(path("target")), "keep");
    EXPECT_FALSE(fs::is_symlink(path("f")));
}

// Another user who knows the name could make the file first, and own it.
TEST_F(ReplaceFile, WhatLiesUnderANameThatCouldBeGuessedIsNotUsed) {
    const std::string guess = path("f.tmp") + std::to_string(::getpid());
    std::ofstream(guess) << "squatted";
    ASSERT_EQ(replace_file(path("f"), "new"), 0);
    EXPECT_EQ(text_of(path("f")), "new");
    EXPECT_EQ(text_of(guess), "squatted");
}

TEST_F(ReplaceFile, NothingIsLeftWhenItCannotBe) {
    fs::create_directory(path("f"));
    EXPECT_EQ(replace_file(path("f"), "new"), EISDIR);
    EXPECT_EQ(files(), 1);
    EXPECT_EQ(replace_file(path("absent/f"), "new"), ENOENT);
}

}  // namespace
}  // namespace ddp::base
