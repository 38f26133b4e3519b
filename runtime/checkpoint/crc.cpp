// Eight bytes a step by tables; for CRC-32C by the processor's own instruction where there is one,
// on three places at a time, as its result comes three cycles after it may be started again.
#include "checkpoint/crc.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "base/cpu_features.hpp"

namespace ddp::checkpoint {

namespace {

static_assert(std::endian::native == std::endian::little);

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: what byte b becomes after k further zero bytes.
constexpr Tables make_tables(std::uint32_t polynomial) {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? polynomial : 0U);
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < tables.size(); ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t crc = tables[k - 1][byte];
            tables[k][byte] = crc >> 8 ^ tables[0][crc & 0xffU];
        }
    }
    return tables;
}

constexpr Tables castagnoli = make_tables(0x82f63b78U);
constexpr Tables zip = make_tables(0xedb88320U);

std::uint64_t load_word(const std::byte* at) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

std::uint32_t by_tables(const Tables& tables, std::span<const std::byte> bytes,
                        std::uint32_t before) {
    std::uint32_t crc = ~before;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        const std::uint64_t word = load_word(bytes.data()) ^ crc;
        crc = 0;
        for (std::size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][word >> (8 * i) & 0xffU];
    }
    for (const std::byte byte : bytes) {
        crc = crc >> 8 ^ tables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xffU];
    }
    return ~crc;
}

#if defined(__x86_64__)
constexpr std::size_t lane_bytes = 4096;
static_assert(std::has_single_bit(lane_bytes));

// What becomes of each bit of a checksum; of any other the sum of its bits'.
using Operator = std::array<std::uint32_t, 32>;

constexpr std::uint32_t apply_operator(const Operator& change, std::uint32_t crc) {
    std::uint32_t sum = 0;
    for (std::size_t bit = 0; bit < change.size(); ++bit) {
        if ((crc >> bit & 1U) != 0) sum ^= change[bit];
    }
    return sum;
}

// Of lane_bytes zero bytes.
constexpr Operator make_lane() {
    Operator change{};
    for (std::size_t bit = 0; bit < change.size(); ++bit) {
        const std::uint32_t crc = std::uint32_t{1} << bit;
        change[bit] = crc >> 8 ^ castagnoli[0][crc & 0xffU];
    }
    for (std::size_t bytes = 1; bytes < lane_bytes; bytes *= 2) {
        Operator twice{};
        for (std::size_t bit = 0; bit < change.size(); ++bit) {
            twice[bit] = apply_operator(change, change[bit]);
        }
        change = twice;
    }
    return change;
}

// The same for each value of each byte of a checksum.
constexpr auto make_lane_tables() {
    constexpr Operator lane = make_lane();
    std::array<std::array<std::uint32_t, 256>, 4> tables{};
    for (std::size_t place = 0; place < tables.size(); ++place) {
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            tables[place][byte] = apply_operator(lane, byte << (8 * place));
        }
    }
    return tables;
}
constexpr auto lane_tables = make_lane_tables();

std::uint64_t skip_lane(std::uint64_t crc) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < lane_tables.size(); ++i) {
        sum ^= lane_tables[i][crc >> (8 * i) & 0xffU];
    }
    return sum;
}

__attribute__((target("sse4.2,crc32"))) std::uint32_t by_instruction(
    std::span<const std::byte> bytes, std::uint32_t before) {
    std::uint64_t crc = static_cast<std::uint32_t>(~before);
    for (; bytes.size() >= 3 * lane_bytes; bytes = bytes.subspan(3 * lane_bytes)) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (const std::byte* at = bytes.data(); at < bytes.data() + lane_bytes; at += 8) {
            crc = __builtin_ia32_crc32di(crc, load_word(at));
            second = __builtin_ia32_crc32di(second, load_word(at + lane_bytes));
            third = __builtin_ia32_crc32di(third, load_word(at + 2 * lane_bytes));
        }
        crc = skip_lane(skip_lane(crc) ^ second) ^ third;
    }
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        crc = __builtin_ia32_crc32di(crc, load_word(bytes.data()));
    }
    auto tail = static_cast<std::uint32_t>(crc);
    for (const std::byte byte : bytes) {
        tail = __builtin_ia32_crc32qi(tail, static_cast<unsigned char>(byte));
    }
    return ~tail;
}
bool has_instruction() { return base::has_sse4_2(); }
#else
std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
    return by_tables(castagnoli, bytes, before);
}
bool has_instruction() { return false; }
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
    static const bool fast = has_instruction();
    return fast ? by_instruction(bytes, before) : by_tables(castagnoli, bytes, before);
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
    return by_tables(zip, bytes, before);
}

}  // namespace ddp::checkpoint
