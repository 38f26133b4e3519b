#include "checkpoint/crc.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

// By the definition: one bit at a time.
std::uint32_t by_bits(std::span<const std::byte> bytes, std::uint32_t polynomial) {
    std::uint32_t crc = ~0U;
    for (const std::byte byte : bytes) {
        crc ^= static_cast<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? polynomial : 0U);
    }
    return ~crc;
}

}  // namespace

TEST(Crc, HasTheCatalogueValues) {
    EXPECT_EQ(ddp::checkpoint::crc32c(bytes_of("123456789")), 0xe3069283U);
    EXPECT_EQ(ddp::checkpoint::crc32(bytes_of("123456789")), 0xcbf43926U);
    EXPECT_EQ(ddp::checkpoint::crc32c({}), 0U);
}

TEST(Crc, IsThatOfTheDefinitionAtEveryLengthAndCut) {
    std::mt19937 random{1};
    std::vector<std::byte> bytes(70);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
        const auto all = std::span<const std::byte>(bytes).first(length);
        const std::uint32_t expected = by_bits(all, 0x82f63b78U);
        const std::uint32_t expected_zip = by_bits(all, 0xedb88320U);
        for (std::size_t cut = 0; cut <= length; ++cut) {
            using namespace ddp::checkpoint;
            EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), expected);
            EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), expected_zip);
        }
    }
}

// Long enough for every way in which bytes are taken at once.
TEST(Crc, IsThatOfTheDefinitionForMuchToo) {
    std::mt19937 random{2};
    std::vector<std::byte> bytes(3 * 12'288 + 13);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    for (const std::size_t length : {4'096U, 12'287U, 12'288U, 12'296U, 24'576U, 36'877U}) {
        const auto all = std::span<const std::byte>(bytes).first(length);
        const std::uint32_t expected = by_bits(all, 0x82f63b78U);
        for (const std::size_t cut : {0U, 1U, 7U, 4'095U}) {
            using ddp::checkpoint::crc32c;
            EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), expected) << length;
        }
    }
}
