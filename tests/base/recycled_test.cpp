// Memory that a thread keeps for its next object.
#include "base/recycled.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace {

struct Base : ddp::base::Recycled {
    virtual ~Base() = default;
};
struct Small : Base {
    int value = 1;
};
struct Large : Base {
    std::array<char, 4096> bytes{};
};

TEST(Recycled, GivesTheNextObjectTheMemoryOfTheLast) {
    std::unique_ptr<Base> one = std::make_unique<Small>();
    const void* const where = one.get();
    one.reset();
    one = std::make_unique<Small>();
    EXPECT_EQ(one.get(), where);
}

TEST(Recycled, GivesLivingObjectsMemoryOfTheirOwn) {
    for (int round = 0; round < 3; ++round) {
        std::vector<std::unique_ptr<Small>> all;
        for (int i = 0; i < 20; ++i) {
            all.push_back(std::make_unique<Small>());
            all.back()->value = i;
        }
        for (int i = 0; i < 20; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)]->value, i);
    }
}

TEST(Recycled, LeavesLargeObjectsToTheHeap) {
    std::unique_ptr<Base> large = std::make_unique<Large>();
    large.reset();
    const std::unique_ptr<Base> small = std::make_unique<Small>();
    large = std::make_unique<Large>();
    EXPECT_EQ(static_cast<Large&>(*large).bytes[4095], 0);
}

TEST(Recycled, MayEndOnAnotherThread) {
    std::unique_ptr<Base> mine = std::make_unique<Small>();
    std::thread([&] {
        mine.reset();
        mine = std::make_unique<Small>();
    }).join();
    EXPECT_EQ(static_cast<Small&>(*mine).value, 1);
}

TEST(RecyclingAllocator, GivesTheNextListTheMemoryOfTheLast) {
    using Numbers = std::vector<int, ddp::base::RecyclingAllocator<int>>;
    std::optional<Numbers> numbers(std::in_place, 10);
    const int* const where = numbers->data();
    numbers.emplace(20);
    EXPECT_EQ(numbers->data(), where);
    numbers->resize(1000, 7);  // the heap's from here on
    EXPECT_NE(numbers->data(), where);
    EXPECT_EQ(numbers->at(999), 7);
    EXPECT_EQ(numbers->at(19), 0);
}

// Ends last on its thread, when the thread has no spare memory any more, and still makes another.
struct Late {
    std::unique_ptr<Base> held;
    ~Late() {
        held = std::make_unique<Small>();
        ended_with = static_cast<Small&>(*held).value;
    }
    static inline int ended_with = 0;
};

TEST(Recycled, MayEndAfterTheSpareMemoryOfItsThread) {
    std::thread([] {
        thread_local Late late;  // constructed before the first Recycled, so destroyed after
        late.held = std::make_unique<Large>();
        late.held = std::make_unique<Small>();
    }).join();
    EXPECT_EQ(Late::ended_with, 1);
}

}  // namespace
