// Memory of the program's that ProcessGroup::adopt makes the group's: its bytes and addresses stay,
// also those on pages that it has only a part of, and every collective gives what it gives else.
#include "process_group/worlds.hpp"

#include <ddp/error.hpp>

#include <sys/mman.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::size_t page = 4096;

// Pages of the program's own, and how many of them are shared with others now.
class Pages {
public:
    explicit Pages(std::size_t pages, int flags = MAP_PRIVATE)
        : bytes_(pages * page),
          data_(static_cast<std::byte*>(
              ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0))) {}
    ~Pages() { ::munmap(data_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    // From that many bytes on.
    std::span<float> floats(std::size_t first, std::size_t count) const {
        return {reinterpret_cast<float*>(data_ + first), count};
    }
    std::span<std::uint8_t> bytes() const {
        return {reinterpret_cast<std::uint8_t*>(data_), bytes_};
    }

    std::size_t count_shared() const {
        const auto first = reinterpret_cast<std::uintptr_t>(data_);
        std::ifstream maps("/proc/self/maps");
        std::size_t shared = 0;
        for (std::string line; std::getline(maps, line);) {
            std::istringstream fields(line);
            std::uintptr_t begin = 0, end = 0;
            char dash = 0;
            std::string access;
            fields >> std::hex >> begin >> dash >> end >> access;
            begin = std::max(begin, first);
            end = std::min(end, first + bytes_);
            if (access.ends_with('s') && begin < end) shared += (end - begin) / page;
        }
        return shared;
    }

private:
    std::size_t bytes_;
    std::byte* data_;
};

void fill(std::span<float> values, int rank) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
    }
}

// The sum of what all ranks fill in.
std::size_t count_right_sums(std::span<const float> values, int ranks, std::size_t first = 0) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto each = static_cast<float>((first + i) % 1000);
        const auto all = static_cast<float>(ranks);
        right += values[i] == all * each + all * (all - 1) / 2 ? 1 : 0;
    }
    return right;
}

TEST(Adopt, MovesWholePagesAndGivesThemBackWithTheirBytes) {
    on_worlds({2, 3}, [](ProcessGroup& group) {
        const Pages pages(40);
        const auto bytes = pages.bytes();
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::uint8_t>(i * 7 % 251);
        const auto count_right = [&] {
            std::size_t right = 0;
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                right += bytes[i] == i * 7 % 251 ? 1 : 0;
            }
            return right;
        };
        {
            // 100 bytes of the first page and 300 of the last.
            const auto adopted = group.adopt(bytes.subspan(page - 100, 38 * page + 400));
            EXPECT_EQ(pages.count_shared(), 38U);
            EXPECT_EQ(count_right(), bytes.size());
            group.barrier().wait();
        }
        EXPECT_EQ(pages.count_shared(), 0U);
        EXPECT_EQ(count_right(), bytes.size());
    });
}

// Each rank's memory begins elsewhere on its page.
TEST(Adopt, ReducesInPlaceAllOfItAndPartsOfIt) {
    on_worlds({1, 2, 4}, [](ProcessGroup& group) {
        constexpr std::size_t count = 100'003;
        const Pages pages(count * sizeof(float) / page + 3);
        const auto rank = static_cast<std::size_t>(group.rank());
        const auto values = pages.floats(64 + rank * 1200, count);
        const auto adopted = group.adopt(values);
        for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{2'000}}) {
            for (const std::size_t left_out :
                 {std::size_t{0}, std::size_t{1}, std::size_t{3'000}}) {
                fill(values, group.rank());
                const std::size_t some = count - first - left_out;
                group.all_reduce(values.subspan(first, some)).wait();
                EXPECT_EQ(count_right_sums(values.subspan(first, some), group.size(), first), some);
                fill(values.subspan(first, some), group.rank());
                EXPECT_EQ(values.front(), static_cast<float>(rank)) << "not a part of it";
                if (left_out == 0) continue;
                EXPECT_EQ(values.back(), static_cast<float>((count - 1) % 1000 + rank));
            }
        }
    });
}

// A page that holds all of it, and one that holds the end of one tensor and the head of another.
TEST(Adopt, LeavesAloneWhatIsOnTheSamePages) {
    on_worlds({2, 3}, [](ProcessGroup& group) {
        const Pages pages(64);
        const std::size_t half = 30 * page / sizeof(float) + 100;
        const auto first = pages.floats(0, half);
        const auto second = pages.floats(half * sizeof(float), half);
        const auto small = pages.floats(62 * page + 128, 500);
        const std::vector<std::shared_ptr<void>> adopted{group.adopt(first), group.adopt(second),
                                                         group.adopt(small)};
        EXPECT_EQ(pages.count_shared(), 30U + 29U);
        for (int i = 0; i < 3; ++i) {
            for (const auto& values : {first, second, small}) fill(values, group.rank());
            group.all_reduce(first).wait();
            EXPECT_EQ(count_right_sums(first, group.size()), first.size());
            EXPECT_EQ(second[0], static_cast<float>(group.rank()));
            group.all_reduce(small).wait();
            group.all_reduce(second).wait();
            EXPECT_EQ(count_right_sums(first, group.size()), first.size());
            EXPECT_EQ(count_right_sums(second, group.size()), second.size());
            EXPECT_EQ(count_right_sums(small, group.size()), small.size());
        }
    });
}

// From adopted memory to other memory and back, in place and not.
TEST(Adopt, GivesEveryCollectiveItsData) {
    on_worlds({2, 3, 4}, [](ProcessGroup& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        const auto rank = static_cast<std::size_t>(group.rank());
        constexpr std::size_t part = 20'001;
        const Pages pages(ranks * part * sizeof(float) / page + 3);
        const auto all = pages.floats(rank * 256 + 4, ranks * part);
        fill(all, 0);
        const auto adopted = group.adopt(all);
        const auto own = all.subspan(rank * part, part);
        std::vector<float> other(ranks * part);

        const auto expect_parts = [&](std::span<const float> values, const char* what) {
            for (std::size_t peer = 0; peer < ranks; ++peer) {
                const auto of_peer = values.subspan(peer * part, part);
                EXPECT_THAT(of_peer, Each(static_cast<float>(peer + 1))) << what;
            }
        };
        std::fill(all.begin(), all.end(), 0.0F);
        std::fill(own.begin(), own.end(), static_cast<float>(rank + 1));
        group.all_gather(own, all).wait();
        expect_parts(all, "all_gather in place");
        group.all_gather(own, other).wait();
        expect_parts(other, "all_gather from it");
        std::fill(all.begin(), all.end(), 0.0F);
        group.all_gather(std::span(other).subspan(rank * part, part), all).wait();
        expect_parts(all, "all_gather into it");

        group.all_to_all(all, other).wait();
        EXPECT_THAT(other, Each(static_cast<float>(rank + 1)));
        std::fill(all.begin(), all.end(), 0.0F);
        group.all_to_all(other, all).wait();
        expect_parts(all, "all_to_all into it");

        std::fill(other.begin(), other.end(), -1.0F);
        group.reduce(all, other, Root{1}).wait();
        if (rank == 1) {
            EXPECT_EQ(other[ranks * part - 1], static_cast<float>(ranks * ranks));
        }
        group.reduce_scatter(all, std::span(other).subspan(0, part)).wait();
        EXPECT_THAT(std::span(other).subspan(0, part),
                    Each(static_cast<float>(ranks * (rank + 1))));
        group.reduce_scatter(all, own).wait();
        EXPECT_THAT(own, Each(static_cast<float>(ranks * (rank + 1))));

        std::fill(all.begin(), all.end(), static_cast<float>(rank));
        group.broadcast(all, Root{1}).wait();
        EXPECT_THAT(all, Each(1.0F));
        std::fill(own.begin(), own.end(), static_cast<float>(rank + 1));
        group.gather(own, all, Root{0}).wait();
        if (rank == 0) expect_parts(all, "gather in place");
        group.scatter(all, own, Root{0}).wait();
        EXPECT_THAT(own, Each(static_cast<float>(rank + 1)));
    });
}

// Only one of the ranks has memory that peers can read, so what had been registered is staged.
TEST(Adopt, GathersIntoItAlsoWhereAnInputIsStaged) {
    on_worlds({2, 3}, [](ProcessGroup& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        const auto rank = static_cast<std::size_t>(group.rank());
        std::vector<std::size_t> counts(ranks, 10);
        counts[0] = 100'000;
        const std::size_t all = 100'000 + 10 * (ranks - 1);
        const Pages pages(400'000 / page + 4), others(400'000 / page + 4);
        const auto output = pages.floats(16, all);
        const auto input = others.floats(64, counts[rank]);
        const std::vector<std::shared_ptr<void>> adopted{group.adopt(output),
                                                         group.adopt(others.bytes())};
        const auto expect_all = [&](const char* what) {
            EXPECT_THAT(output.first(100'000), Each(1.0F)) << what;
            for (std::size_t peer = 1; peer < ranks; ++peer) {
                EXPECT_THAT(output.subspan(100'000 + 10 * (peer - 1), 10),
                            Each(static_cast<float>(peer + 1)))
                    << what;
            }
        };
        for (const bool even : {false, true}) {
            std::fill(output.begin(), output.end(), -1.0F);
            std::fill(input.begin(), input.end(), static_cast<float>(rank + 1));
            if (!even) {
                group.all_gather(input, output, counts).wait();
                expect_all("uneven");
                continue;
            }
            constexpr std::size_t part = 30'000;
            std::vector<float> ordinary(part, static_cast<float>(rank + 1));
            const auto from = rank == 0 ? others.floats(64, part) : std::span(ordinary);
            std::fill(from.begin(), from.end(), static_cast<float>(rank + 1));
            group.all_gather(from, output.first(ranks * part)).wait();
            for (std::size_t peer = 0; peer < ranks; ++peer) {
                EXPECT_THAT(output.subspan(peer * part, part), Each(static_cast<float>(peer + 1)));
            }
        }
    });
}

TEST(Adopt, MayOutliveTheGroupAndEndInAnyOrder) {
    const auto body = [](RankReporter& reporter, const std::function<ProcessGroup()>& join) {
        const Pages pages(96);
        std::vector<std::shared_ptr<void>> adopted;
        {
            ProcessGroup group = join();
            for (std::size_t i = 0; i < 3; ++i) {
                adopted.push_back(group.adopt(pages.bytes().subspan(i * 32 * page, 32 * page)));
            }
            adopted.erase(adopted.begin() + group.rank());
            // What is its own again is adopted anew, and reduced beside memory that still is.
            const auto own = static_cast<std::size_t>(group.rank()) * 32 * page;
            const auto values = pages.floats(own, 32 * page / sizeof(float));
            adopted.push_back(group.adopt(values));
            std::fill(values.begin(), values.end(), 1.0F);
            group.all_reduce(values).wait();
            if (std::count(values.begin(), values.end(), 3.0F) != 32 * 1024) {
                reporter.failure("a wrong sum");
            }
        }
        if (pages.count_shared() != 96) reporter.failure("not shared any more");
        adopted.clear();
        if (pages.count_shared() != 0) reporter.failure("still shared");
    };
    run_joining_ranks(3, body);
}

// All ranks hear why, and the group goes on.
TEST(Adopt, IsRefusedOnEveryRankWhereOneCannot) {
    on_worlds({2, 3}, [](ProcessGroup& group) {
        const Pages ordinary(8);
        const Pages shared(8, MAP_SHARED);
        const Pages constant(8);
        ::mprotect(constant.bytes().data() + 4 * page, page, PROT_READ);
        const Pages holed(8);
        ::munmap(holed.bytes().data() + 4 * page, page);
        std::array<std::uint8_t, 8 * page> on_stack{};
        const auto refusal = [&](std::span<std::uint8_t> of_rank_1) {
            try {
                static_cast<void>(group.adopt(group.rank() == 1 ? of_rank_1 : ordinary.bytes()));
            } catch (const SystemError& error) {
                return std::string(error.what());
            }
            return std::string("none");
        };
        const std::string what = "shm: adopt 32768 bytes on each of " +
                                 std::to_string(group.size()) + " ranks, of rank 1 (";
        EXPECT_THAT(refusal(shared.bytes()),
                    AllOf(HasSubstr(what), HasSubstr("): it is shared already")));
        EXPECT_THAT(refusal(constant.bytes()), HasSubstr("it cannot be written to"));
        EXPECT_THAT(refusal(holed.bytes()), HasSubstr("there is none at its address"));
        if (group.size() == 2) {
            EXPECT_THAT(refusal(on_stack), HasSubstr("it is a stack's"));
        }
        EXPECT_EQ(ordinary.count_shared(), 0U) << "given back where it had moved";
        EXPECT_EQ(refusal(ordinary.bytes()), "none");
        EXPECT_EQ(group.all_reduce(1), group.size()) << "the group goes on";
    });
}

TEST(Adopt, TellsEveryRankWhenTheirSizesDiffer) {
    run_ranks(2, [](ProcessGroup& group) {
        const Pages pages(4);
        try {
            static_cast<void>(group.adopt(pages.bytes().first(group.rank() == 0 ? 8 : 9)));
            ADD_FAILURE() << "went on";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("rank 0 called adopt of 8 uint8, rank 1 called "
                                                "adopt of 9 uint8"));
        }
    });
}

// Adopts that many pages but for their ends, reduces them, and counts how many are shared.
void expect_shared_pages(ProcessGroup& group, std::size_t count, std::size_t shared) {
    const Pages pages(count);
    const auto values = pages.floats(16, (count - 1) * page / sizeof(float));
    fill(values, group.rank());
    const auto adopted = group.adopt(values);
    EXPECT_EQ(pages.count_shared(), shared);
    group.all_reduce(values).wait();
    EXPECT_EQ(count_right_sums(values, group.size()), values.size());
}

// There nothing is shared: it only must not be in the way.
TEST(Adopt, ChangesNothingOnGloo) {
    run_ranks(2, [](ProcessGroup& group) { expect_shared_pages(group, 8, 0); },
              {.init = {.backend = Backend::gloo}});
}

TEST(Adopt, SharesWithTheRanksOfThisHost) {
    run_ranks(
        3,
        [](ProcessGroup& group) { expect_shared_pages(group, 1024, group.rank() < 2 ? 1022 : 0); },
        {.hosts = {2, 1}});
}

}  // namespace
