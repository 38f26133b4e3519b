// More elements than 31 bits count, once, on memory of the caller's. Never beside another test: it
// takes 4 GiB.
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

namespace {

using namespace ddp;

constexpr std::size_t elements = (std::size_t{1} << 31) + 3;
constexpr std::size_t period = 4'093;  // a prime: no chunk begins like another

TEST(Large, AllReducesMoreThanTwoGibibytes) {
    const std::string free_bytes = ddp::testing::made_once(
        [] { return std::to_string(::sysconf(_SC_AVPHYS_PAGES) * ::sysconf(_SC_PAGESIZE)); });
    if (std::stoull(free_bytes) < 5 * elements / 2) {
        GTEST_SKIP() << "needs 5 GiB of free memory";
    }
    ddp::testing::run_ranks(2, [](ProcessGroup& group) {
        const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(elements);
        std::uint8_t pattern[period];
        for (std::size_t i = 0; i < period; ++i) pattern[i] = static_cast<std::uint8_t>(i * 7);
        for (std::size_t i = 0; i < elements; i += period) {
            std::copy_n(pattern, std::min(period, elements - i), memory.get() + i);
        }
        group.all_reduce(std::span(memory.get(), elements)).wait();
        for (auto& byte : pattern) byte = static_cast<std::uint8_t>(2 * byte);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < elements; i += period) {
            const std::size_t count = std::min(period, elements - i);
            wrong += !std::equal(pattern, pattern + count, memory.get() + i);
        }
        EXPECT_EQ(wrong, 0U) << "stretches of " << period;
    });
}

}  // namespace
