// The error file: what torch's launcher would read from us, and what we read from torch's workers.
#include "contract/error_file.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

using namespace ddp::contract;
using ::testing::HasSubstr;

class ErrorFile : public ::testing::Test {
protected:
    ErrorFile() {
        std::string pattern = (std::filesystem::temp_directory_path() / "ddp-test-XXXXXX").string();
        dir_ = ::mkdtemp(pattern.data());
        path_ = dir_ / "error.json";
        ::setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
    }
    ~ErrorFile() override {
        ::unsetenv("TORCHELASTIC_ERROR_FILE");
        std::filesystem::remove_all(dir_);
    }
    void write(const std::string& text) const { std::ofstream(path_) << text; }
    std::string text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    std::filesystem::path dir_;
    std::filesystem::path path_;
};

ErrorReport describe_thrown(const auto& error) { return describe(std::make_exception_ptr(error)); }

TEST_F(ErrorFile, ComesBackAsItWasWritten) {
    write_error_file({"ddp::PeerError: rank 2 is gone", 2});
    const auto report = read_error_file(path_);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->message, "ddp::PeerError: rank 2 is gone");
    EXPECT_EQ(report->peer, 2);
}

TEST_F(ErrorFile, HasTheFormOfTorchsRecord) {
    write_error_file({"text", std::nullopt});
    EXPECT_THAT(text(), HasSubstr(R"("message":{"extraInfo":{"py_callstack":"","timestamp":")"));
    EXPECT_THAT(text(), HasSubstr(R"("message":"text"}})"));
}

TEST_F(ErrorFile, LeavesNoTemporaryFile) {
    write_error_file({"text", std::nullopt});
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

TEST_F(ErrorFile, SurvivesBytesThatAreNoText) {
    write_error_file({"bad \xff\xfe bytes \"quoted\"\n", std::nullopt});
    ASSERT_TRUE(read_error_file(path_));
    EXPECT_THAT(read_error_file(path_)->message, HasSubstr("bytes \"quoted\"\n"));
}

TEST_F(ErrorFile, IsReadInTorchsShortForm) {
    write(R"({"message": "out of memory", "timestamp": 10})");
    ASSERT_TRUE(read_error_file(path_));
    EXPECT_EQ(read_error_file(path_)->message, "out of memory");
}

TEST_F(ErrorFile, KeepsTheCallstackAndTheTimeOfTorchs) {
    write(
        R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "File a\nValueError: bad\n", "timestamp": "1700000001"}}})");
    const auto report = read_error_file(path_);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->message, "ValueError: bad");
    EXPECT_EQ(report->callstack, "File a\nValueError: bad\n");
    EXPECT_EQ(report->timestamp, 1700000001);
}

TEST_F(ErrorFile, IsReadWithOddContentAroundTheMessage) {
    for (const std::string& odd : {
             std::string(R"({"message": {"message": "x", "extraInfo": null}})"),
             std::string(R"({"message": {"message": "x", "extraInfo": [1]}, "more": {}})"),
             std::string(R"({"message": {"message": {"message": "x"}, "errorCode": 3}})"),
             std::string(R"({"message": {"message": "x", "extraInfo": {"timestamp": true}}})"),
             std::string(R"({"message": {"message": "x", "extraInfo": {"timestamp": 1e300}}})"),
             std::string(R"({"message": {"message": "x", "extraInfo": {"py_callstack": 5}}})"),
         }) {
        write(odd);
        const auto report = read_error_file(path_);
        ASSERT_TRUE(report) << odd;
        EXPECT_EQ(report->message, "x") << odd;
        EXPECT_FALSE(report->timestamp) << odd;
    }
}

TEST_F(ErrorFile, OfMoreThanAMebibyteIsNotBelieved) {
    write(R"({"message": ")" + std::string(std::size_t{1} << 20, 'x') + R"("})");
    EXPECT_FALSE(read_error_file(path_));
}

std::string repeated(const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
}

TEST_F(ErrorFile, OfAMillionLevelsIsNotBelieved) {
    constexpr int deep = 1'000'000;
    for (const auto& [open, close] :
         {std::pair{std::string("["), std::string("]")}, {R"({"a":)", "1}"}}) {
        for (const char* name : {"timestamp", "peer", "py_callstack", "more", "extraInfo"}) {
            const std::string nested = repeated(open, deep) + repeated(close, deep);
            write(R"({"message":"x",")" + std::string(name) + "\":" + nested + "}");
            EXPECT_FALSE(read_error_file(path_)) << name;
        }
    }
    // Within the size that is read, too.
    constexpr int shorter = 400'000;
    write(R"({"message":"x","timestamp":)" + repeated("[", shorter) + repeated("]", shorter) + "}");
    EXPECT_FALSE(read_error_file(path_));
    EXPECT_EQ(copy_error_file(path_, dir_ / "ours.json", 3, {"rank 1 failed"}), 0);
    EXPECT_EQ(read_error_file(dir_ / "ours.json")->message, "rank 1 failed");
}

TEST_F(ErrorFile, OfManyValuesIsNotBelieved) {
    write(R"({"message":"x","more":[)" + repeated("{},", 300'000) + "0]}");
    EXPECT_FALSE(read_error_file(path_));
    write(R"({"message":"x","more":[)" + repeated("{},", 1000) + "0]}");
    EXPECT_TRUE(read_error_file(path_));
}

TEST_F(ErrorFile, OfAGibibyteIsNotEvenRead) {
    write(R"({"message": "x"})");
    std::filesystem::resize_file(path_, std::uintmax_t{1} << 30);
    EXPECT_FALSE(read_error_file(path_));
    write(R"({"message": "x"})" + std::string(100, ' '));
    EXPECT_TRUE(read_error_file(path_));
}

TEST_F(ErrorFile, NamesOnlyAPeerThatIsANumberOfARank) {
    for (const char* odd : {"-1", "4294967297", "2147483648", "18446744073709551616", "1.5",
                            "\"1\"", "[1]", "null", "1e3"}) {
        write(R"({"message": {"message": "x", "extraInfo": {"peer": )" + std::string(odd) + "}}}");
        const auto report = read_error_file(path_);
        ASSERT_TRUE(report) << odd;
        EXPECT_FALSE(report->peer) << odd;
    }
}

TEST_F(ErrorFile, HasATextThatIsCutRatherThanNotBelieved) {
    write_error_file({std::string(50'000'000, '\x01'), 2});
    const auto report = read_error_file(path_);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->peer, 2);
    EXPECT_EQ(report->message.size(), 65536U);
}

TEST_F(ErrorFile, IsNeverWrittenIntoAFileThatWasThere) {
    const auto other = dir_ / "other.json";
    std::ofstream(other) << "theirs";
    std::filesystem::create_symlink(other, path_);
    write_error_file({"ours", std::nullopt});
    std::ifstream file(other);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "theirs");
    EXPECT_EQ(read_error_file(path_)->message, "ours");
}

TEST_F(ErrorFile, IsCopiedWithTheErrorCodeInPlaceOfWhatWasThere) {
    const std::string to = dir_ / "ours.json";
    std::ofstream(to) << "old";
    write(R"({"message": {"message": "x", "extraInfo": {"py_callstack": "y"}, "errorCode": 1}})");
    EXPECT_EQ(copy_error_file(path_, to, -9, {"unused"}), 0);
    std::ifstream file(to);
    const std::string copy{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(copy,
              R"({"message":{"errorCode":-9,"extraInfo":{"py_callstack":"y"},"message":"x"}})");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 2);
}

TEST_F(ErrorFile, IsCopiedFromTheShortFormAndMadeWhenThereIsNone) {
    const std::string to = dir_ / "ours.json";
    write(R"({"message": "short", "timestamp": 10})");
    EXPECT_EQ(copy_error_file(path_, to, 3, {"unused"}), 0);
    ASSERT_TRUE(read_error_file(to));
    EXPECT_EQ(read_error_file(to)->message, "short");
    EXPECT_EQ(read_error_file(to)->timestamp, 10);
    write("damaged");
    EXPECT_EQ(copy_error_file(path_, to, 3, {"rank 1 failed"}), 0);
    EXPECT_EQ(read_error_file(to)->message, "rank 1 failed");
    EXPECT_EQ(copy_error_file(path_, dir_ / "no folder" / "ours.json", 3, {"x"}), ENOENT);
}

TEST_F(ErrorFile, IsMadeWhenTheOneToCopySaysNothing) {
    const std::string to = dir_ / "ours.json";
    for (const char* empty : {R"({"message": {}})", R"({"message": {"message": ""}})"}) {
        write(empty);
        EXPECT_EQ(copy_error_file(path_, to, 3, {"rank 1 failed"}), 0) << empty;
        ASSERT_TRUE(read_error_file(to)) << empty;
        EXPECT_EQ(read_error_file(to)->message, "rank 1 failed") << empty;
    }
}

TEST_F(ErrorFile, IsNothingWhenAbsentOrDamaged) {
    EXPECT_FALSE(read_error_file(path_));
    const std::string deep(200000, '[');
    for (const std::string& damaged :
         {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
          std::string(R"({"message": 5})"), std::string(R"({"message": {"message": []}})"), deep,
          std::string(R"({"message": )") + deep + std::string(200000, ']') + "}",
          std::string(R"({"message": {}})"), std::string(R"({"message": ""})")}) {
        write(damaged);
        EXPECT_FALSE(read_error_file(path_)) << damaged.substr(0, 40);
    }
}

TEST_F(ErrorFile, IsBelievedUpToItsBoundsAndNotBeyond) {
    const auto believed = [this](const std::string& rest) {
        write(R"({"message": "text")" + rest + "}");
        return read_error_file(path_).has_value();
    };
    const auto levels = [](std::size_t count) {  // besides the object around it
        return R"(, "deep": )" + std::string(count, '[') + std::string(count, ']');
    };
    EXPECT_TRUE(believed(levels(31)));
    EXPECT_FALSE(believed(levels(32)));
    const auto values = [](std::size_t count) {  // besides that object, its text and this list
        std::string list(2 * count - 1, ',');
        for (std::size_t i = 0; i < count; ++i) list[2 * i] = '0';
        return R"(, "many": [)" + list + "]";
    };
    EXPECT_TRUE(believed(values(19'997)));
    EXPECT_FALSE(believed(values(19'998)));
    const std::size_t least = std::string(R"({"message": "text"})").size();
    EXPECT_TRUE(believed(std::string((1 << 20) - least, ' ')));
    EXPECT_FALSE(believed(std::string((1 << 20) - least + 1, ' ')));
}

TEST_F(ErrorFile, IsNothingWhenItIsNoRegularFile) {
    std::filesystem::create_directory(path_);
    EXPECT_FALSE(read_error_file(path_));
    std::filesystem::remove(path_);
    EXPECT_FALSE(read_error_file("/dev/zero"));
    EXPECT_FALSE(read_error_file("/dev/tty"));
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_FALSE(read_error_file(path_)) << "and does not wait for a writer";
    const auto other = dir_ / "other.json";
    std::ofstream(other) << R"({"message": "text"})";
    std::filesystem::remove(path_);
    std::filesystem::create_symlink(other, path_);
    EXPECT_FALSE(read_error_file(path_));
    EXPECT_TRUE(read_error_file(other));
}

TEST_F(ErrorFile, IsNotWrittenWithoutTheVariable) {
    ::unsetenv("TORCHELASTIC_ERROR_FILE");
    write_error_file({"text", std::nullopt});
    EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(ErrorFile, IsWrittenByTheTerminateHandler) {
    EXPECT_EXIT(
        {
            install_terminate_handler();
            // An exception that leaves a thread has nobody to catch it.
            std::thread([] { throw ddp::PeerError(3, "rank 3 ended"); }).join();
        },
        ::testing::KilledBySignal(SIGABRT), "rank 3 ended");
    const auto report = read_error_file(path_);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->peer, 3);
}

TEST(ErrorReport, NamesTypeTextAndPeer) {
    EXPECT_EQ(describe_thrown(ddp::UsageError("no")).message, "ddp::UsageError: no");
    EXPECT_EQ(describe_thrown(ddp::PeerError(4, "gone")).peer, 4);
    EXPECT_EQ(describe_thrown(std::runtime_error("x")).message, "std::runtime_error: x");
    EXPECT_FALSE(describe_thrown(5).message.empty());
}

}  // namespace
