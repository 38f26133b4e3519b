#include "launcher/hosts/job_token.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

namespace ddp::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string hex = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";

class JobTokenFile : public ::testing::Test {
protected:
    JobTokenFile() {
        std::string name = std::filesystem::temp_directory_path() / "ddp-token-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
        folder_ = name;
    }
    ~JobTokenFile() override { std::filesystem::remove_all(folder_); }

    std::string file(const std::string& text, int mode = 0600, const std::string& name = "token") {
        const std::string path = folder_ + "/" + name;
        std::ofstream(path) << text;
        EXPECT_EQ(::chmod(path.c_str(), static_cast<mode_t>(mode)), 0);
        return path;
    }
    static std::string trouble_with(const std::string& path) {
        try {
            JobToken::read(path);
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), AllOf(HasSubstr("DDP_JOB_TOKEN_FILE"), HasSubstr(path)));
            EXPECT_THAT(error.what(), Not(HasSubstr(hex.substr(0, 8))));
            return error.what();
        }
        return "none";
    }

    std::string folder_;
};

std::string bytes_of(const JobToken& token) {
    return {reinterpret_cast<const char*>(token.bytes().data()), token.bytes().size()};
}

TEST(JobToken, IsSixtyFourHexDigitsAndMaybeANewline) {
    std::string expected;
    for (int i = 0; i < 16; ++i) expected += static_cast<char>(i * 0x11);
    for (int i = 15; i >= 0; --i) expected += static_cast<char>(i * 0x11);
    ASSERT_TRUE(JobToken::parse(hex));
    EXPECT_EQ(bytes_of(*JobToken::parse(hex)), expected);
    EXPECT_EQ(bytes_of(*JobToken::parse(hex + "\n")), expected);
    for (const std::string& wrong :
         {std::string(), std::string("\n"), hex.substr(1), hex + "0", hex + "\n\n", hex + " ",
          " " + hex, hex + "\r\n", std::string(64, 'g'), std::string(32, '\x17'),
          hex.substr(0, 63) + '\0'}) {
        EXPECT_FALSE(JobToken::parse(wrong)) << wrong;
    }
}

TEST(JobToken, IsWipedWhenItGoes) {
    alignas(JobToken) std::array<unsigned char, sizeof(JobToken)> room{};
    const auto* const token = new (room.data()) JobToken(*JobToken::parse(hex));
    EXPECT_NE(room[1], 0);
    token->~JobToken();
    // Read as volatile, since nothing may be read of an object that has gone.
    for (const volatile unsigned char& byte : room) EXPECT_EQ(byte, 0);
}

TEST_F(JobTokenFile, IsReadWhereNobodyElseMayReadIt) {
    for (const int mode : {0600, 0400}) {
        const std::string path = file(hex + "\n", mode, "token" + std::to_string(mode));
        EXPECT_EQ(bytes_of(JobToken::read(path)), bytes_of(*JobToken::parse(hex)));
    }
    // As secrets are mounted: what the link leads to counts.
    const std::string link = folder_ + "/link";
    std::filesystem::create_symlink("token384", link);
    EXPECT_EQ(bytes_of(JobToken::read(link)), bytes_of(*JobToken::parse(hex)));
}

TEST_F(JobTokenFile, ThatOthersMayReadOrWriteIsRefused) {
    for (const int mode : {0604, 0640, 0602, 0620, 0601, 0610, 0666}) {
        EXPECT_THAT(trouble_with(file(hex, mode)), HasSubstr("chmod 600")) << std::oct << mode;
    }
    file(hex, 0644, "open");
    const std::string link = folder_ + "/link";
    std::filesystem::create_symlink("open", link);
    EXPECT_THAT(trouble_with(link), HasSubstr("chmod 600"));
}

TEST_F(JobTokenFile, OfAnotherUserIsRefused) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
    const std::string path = file(hex);
    ASSERT_EQ(::chown(path.c_str(), 1234, 1234), 0);
    EXPECT_THAT(trouble_with(path), HasSubstr("belongs to user 1234"));
}

TEST_F(JobTokenFile, ThatIsNoRegularFileIsRefusedAndNotWaitedFor) {
    EXPECT_THAT(trouble_with(folder_), HasSubstr("no regular file"));
    const std::string fifo = folder_ + "/fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_THAT(trouble_with(fifo), HasSubstr("no regular file"));
    EXPECT_THAT(trouble_with("/dev/null"), HasSubstr("no regular file"));
    const std::string link = folder_ + "/link";
    std::filesystem::create_symlink("/dev/zero", link);
    EXPECT_THAT(trouble_with(link), HasSubstr("no regular file"));
    EXPECT_THAT(trouble_with(folder_ + "/none"), HasSubstr("No such file"));
    std::filesystem::create_symlink("itself", folder_ + "/itself");
    EXPECT_THAT(trouble_with(folder_ + "/itself"), HasSubstr("cannot be opened"));
}

TEST_F(JobTokenFile, WithoutATokenSaysHowToMakeOneAndNotWhatItHolds) {
    for (const std::string& text : {std::string(), hex.substr(2), hex + hex, hex + "0",
                                    std::string("password\n"), std::string(100'000, 'a')}) {
        EXPECT_THAT(trouble_with(file(text)),
                    AllOf(HasSubstr("64 hex digits"), HasSubstr("openssl rand -hex 32"),
                          Not(HasSubstr("password"))));
    }
}

TEST_F(JobTokenFile, IsTheOneThatTheVariableNames) {
    const std::string path = file(hex);
    const auto with = [](std::optional<std::string> value) {
        return [value](std::string_view name) {
            return name == "DDP_JOB_TOKEN_FILE" ? value : std::nullopt;
        };
    };
    EXPECT_FALSE(job_token(with(std::nullopt)));
    EXPECT_EQ(bytes_of(*job_token(with(path))), bytes_of(*JobToken::parse(hex)));
    EXPECT_THROW(job_token(with("")), UsageError) << "a variable that came to nothing";
}

}  // namespace
}  // namespace ddp::launcher
