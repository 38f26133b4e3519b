// Digits: how rows become samples, and each way in which a file can be wrong. The real file is read
// by the program's own tests (train_digits_test.cpp).
#include "nn/digits.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using nn::Digits;
using testing::HasSubstr;

std::string row(const std::string& pixel, const std::string& label) {
    std::string text;
    for (std::size_t i = 0; i < Digits::pixels; ++i) text += pixel + ",";
    return text + label + "\n";
}

class DigitsFile : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "ddp-digits-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }

    fs::path file() const { return dir_ / Digits::file_name; }
    void put_compressed(const std::string& text) const {
        gzFile out = gzopen(file().c_str(), "wb");
        ASSERT_NE(out, nullptr);
        EXPECT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())),
                  static_cast<int>(text.size()));
        EXPECT_EQ(gzclose(out), Z_OK);
    }
    std::string error_of(const std::string& text) const {
        put_compressed(text);
        return error_of_loading();
    }
    std::string error_of_loading() const {
        try {
            Digits::load(dir_);
        } catch (const ddp::UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr(file().string()));
            return error.what();
        }
        return "no error";
    }

    fs::path dir_;
};

}  // namespace

TEST_F(DigitsFile, HasPixelsFromZeroToOne) {
    put_compressed(row("0", "3") + row("8", "0") + row("16", "9"));
    const Digits digits = Digits::load(dir_);
    ASSERT_EQ(digits.size(), 3U);
    const auto [images, labels] = digits.batch(std::vector<std::size_t>{2, 1});
    EXPECT_EQ(labels, (std::vector<std::int32_t>{9, 0}));
    ASSERT_EQ(images.size(), 2 * Digits::pixels);
    EXPECT_EQ(images.front(), 1.0F);
    EXPECT_EQ(images.back(), 0.5F);
}

TEST_F(DigitsFile, IsSplitByIndex) {
    std::string text;
    for (int i = 0; i < 7; ++i) text += row("1", std::to_string(i));
    put_compressed(text);
    const auto [train, test] = Digits::load(dir_).split_every(3);
    EXPECT_EQ(train.all().labels, (std::vector<std::int32_t>{1, 2, 4, 5}));
    EXPECT_EQ(test.all().labels, (std::vector<std::int32_t>{0, 3, 6}));
    EXPECT_EQ(test.all().images.size(), 3 * Digits::pixels);
}

TEST_F(DigitsFile, MayLackTheLastNewline) {
    std::string text = row("1", "2");
    text.pop_back();
    EXPECT_EQ(error_of(text), "no error");
}

TEST_F(DigitsFile, IsRefusedWithTheNumberOfTheLine) {
    const std::string good = row("1", "2");
    EXPECT_THAT(error_of(good + row("17", "2")), HasSubstr("line 2"));
    EXPECT_THAT(error_of(row("17", "2")), HasSubstr("field 1 is '17', not a whole number from 0"));
    EXPECT_THAT(error_of(row("-1", "2")), HasSubstr("field 1 is '-1'"));
    EXPECT_THAT(error_of(row("1.5", "2")), HasSubstr("field 1 is '1.5'"));
    EXPECT_THAT(error_of(row("", "2")), HasSubstr("field 1 is ''"));
    EXPECT_THAT(error_of(row(" 1", "2")), HasSubstr("field 1 is ' 1'"));
    EXPECT_THAT(error_of(row("1", "10")), HasSubstr("field 65 is '10'"));
    EXPECT_THAT(error_of(row("1", "2\r")), HasSubstr("field 65 is '2\r'"));
    EXPECT_THAT(error_of(row("1", "2,3")), HasSubstr("66 fields"));
    EXPECT_THAT(error_of(good + "1,2\n"), HasSubstr("line 2"));
    EXPECT_THAT(error_of(good + "\n" + good), HasSubstr("it has 1 fields"));
    EXPECT_THAT(error_of(""), HasSubstr("is empty"));
}

TEST_F(DigitsFile, IsRefusedWhenTheCompressedDataIsCutOrDamaged) {
    std::string text;
    for (int i = 0; i < 10; ++i) text += row(std::to_string(i), std::to_string(i));
    put_compressed(text);
    std::ifstream in{file(), std::ios::binary};
    const std::string whole{std::istreambuf_iterator<char>(in), {}};
    for (const std::size_t cut : {std::size_t{1}, std::size_t{8}, whole.size() / 2}) {
        std::ofstream{file(), std::ios::binary} << whole.substr(0, whole.size() - cut);
        EXPECT_THAT(error_of_loading(), HasSubstr("is damaged")) << cut << " bytes cut off";
    }
    std::string damaged = whole;
    damaged[damaged.size() - 6] = static_cast<char>(~damaged[damaged.size() - 6]);  // the checksum
    std::ofstream{file(), std::ios::binary} << damaged;
    EXPECT_THAT(error_of_loading(), HasSubstr("is damaged"));
}

TEST_F(DigitsFile, IsRefusedWhenItIsNotThere) {
    EXPECT_THAT(error_of_loading(), HasSubstr("No such file or directory"));
}
