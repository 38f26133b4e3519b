// What every store promises, tried on all of them: in memory, in a file, over TCP, and behind
// prefixes.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "seed.hpp"
#include "temp_dir.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using store_test::random_seed;
using testing::HasSubstr;
using testing::Not;

constexpr Store::Timeout patient = 30s;  // for what must come
constexpr Store::Timeout brief = 50ms;   // for what never comes

// Each has open(): one more handle on the same store, as another rank would have.
struct Memory {
    std::shared_ptr<Store> open() { return store_; }
    std::shared_ptr<Store> store_ = make_memory_store(patient);
};
struct File {
    std::shared_ptr<Store> open() { return make_file_store(dir_.file("store"), patient); }
    store_test::TempDir dir_;
};
struct Tcp {
    std::shared_ptr<Store> open() {
        return connect_tcp_store({"127.0.0.1", server_.port()}, patient);
    }
    TcpStoreServer server_{{"127.0.0.1", 0}};
};
template <class Inner>
struct Prefixed {
    std::shared_ptr<Store> open() { return make_prefix_store("group/1", inner_.open()); }
    Inner inner_;
};

template <class Kind>
class StoreSuite : public testing::Test {
protected:
    Kind kind;
    std::shared_ptr<Store> store = kind.open();
};

struct KindNames {
    template <class Kind>
    static std::string GetName(int) {
        if constexpr (std::is_same_v<Kind, Memory>) return "MemoryStore";
        if constexpr (std::is_same_v<Kind, File>) return "FileStore";
        if constexpr (std::is_same_v<Kind, Tcp>) return "TcpStore";
        if constexpr (std::is_same_v<Kind, Prefixed<Memory>>) return "PrefixOverMemoryStore";
        if constexpr (std::is_same_v<Kind, Prefixed<Tcp>>) return "PrefixOverTcpStore";
    }
};
using Kinds = testing::Types<Memory, File, Tcp, Prefixed<Memory>, Prefixed<Tcp>>;
TYPED_TEST_SUITE(StoreSuite, Kinds, KindNames);

template <class Call>
std::string timeout_text(Call call) {
    try {
        call();
    } catch (const TimeoutError& error) {
        return error.what();
    }
    ADD_FAILURE() << "no TimeoutError";
    return {};
}

TYPED_TEST(StoreSuite, GetReturnsWhatSetStored) {
    auto& mine = *this->store;
    const std::string bytes{"a\0b\xFF\n", 5};
    mine.set("k", bytes);
    EXPECT_EQ(mine.get("k"), bytes);
    mine.set("k", "");
    EXPECT_EQ(mine.get("k"), "");
    mine.set("", "the empty key");
    EXPECT_EQ(mine.get(""), "the empty key");
}

TYPED_TEST(StoreSuite, ASecondHandleSeesWhatTheFirstStored) {
    const auto other = this->kind.open();
    this->store->set("k", "v");
    EXPECT_EQ(other->get("k"), "v");
    EXPECT_EQ(other->timeout(), patient);
}

TYPED_TEST(StoreSuite, AHandleReadsItsOwnLastWrite) {
    for (int i = 0; i < 300; ++i) {
        this->store->set("k", std::to_string(i));
        ASSERT_EQ(this->store->get("k"), std::to_string(i));
    }
}

TYPED_TEST(StoreSuite, GetWaitsUntilTheKeyIsSet) {
    const auto other = this->kind.open();
    auto value = std::async(std::launch::async, [&] { return this->store->get("late"); });
    other->set("early", "");
    other->set("late", "came");
    EXPECT_EQ(value.get(), "came");
}

TYPED_TEST(StoreSuite, GetOfAKeyThatNeverComesNamesItAndTheTimeout) {
    const auto start = std::chrono::steady_clock::now();
    const auto text = timeout_text([&] { this->store->get("never", brief); });
    EXPECT_GE(std::chrono::steady_clock::now() - start, brief);
    EXPECT_THAT(text, HasSubstr("never]"));
    EXPECT_THAT(text, HasSubstr("were not set within 50 ms"));
}

TYPED_TEST(StoreSuite, WaitReturnsOnceAllKeysAreThere) {
    const auto other = this->kind.open();
    std::atomic<bool> done = false;
    auto waiting = std::async(std::launch::async, [&] {
        this->store->wait({"a", "b", "a"});
        done = true;
    });
    other->set("a", "");
    EXPECT_FALSE(done);
    other->add("b", 1);
    waiting.get();
    EXPECT_TRUE(done);
}

TYPED_TEST(StoreSuite, ATimedOutWaitNamesOnlyTheMissingKeys) {
    this->store->set("there", "");
    const auto text = timeout_text([&] {
        this->store->wait({"absent1", "there", "absent2"}, brief);
    });
    EXPECT_THAT(text, HasSubstr("absent1"));
    EXPECT_THAT(text, HasSubstr("absent2"));
    EXPECT_THAT(text, Not(HasSubstr("there")));
}

TYPED_TEST(StoreSuite, ATimeoutOfZeroOnlyLooks) {
    this->store->set("k", "v");
    EXPECT_EQ(this->store->get("k", 0ms), "v");
    EXPECT_THROW(this->store->wait({"absent"}, 0ms), TimeoutError);
    EXPECT_THROW(this->store->wait({"absent"}, -1ms), TimeoutError);
    this->store->wait({}, 0ms);
}

TYPED_TEST(StoreSuite, TheStoreGoesOnAfterATimeout) {
    EXPECT_THROW(this->store->get("k", brief), TimeoutError);
    this->store->set("k", "v");
    EXPECT_EQ(this->store->get("k", patient), "v");
}

TYPED_TEST(StoreSuite, TryGetDoesNotWait) {
    EXPECT_EQ(this->store->try_get("k"), std::nullopt);
    this->store->set("k", "");
    EXPECT_EQ(this->store->try_get("k"), "");
}

TYPED_TEST(StoreSuite, AddSumsAndStoresADecimalNumber) {
    EXPECT_EQ(this->store->add("n", 5), 5);
    EXPECT_EQ(this->store->add("n", -12), -7);
    EXPECT_EQ(this->store->add("n", 0), -7);
    EXPECT_EQ(this->store->get("n"), "-7");
    this->store->set("n", "41");
    EXPECT_EQ(this->store->add("n", 1), 42);
    EXPECT_EQ(this->store->add("m", INT64_MIN), INT64_MIN);
}

TYPED_TEST(StoreSuite, AddToWhatIsNoNumberIsAnError) {
    for (const std::string text : {"", "twelve", "1x", "1 ", "99999999999999999999"}) {
        const auto handle = this->kind.open();  // over TCP the error costs the connection
        handle->set("n", text);
        EXPECT_THROW(handle->add("n", 1), Error) << text;
    }
    const auto handle = this->kind.open();
    handle->set("n", "9223372036854775807");
    EXPECT_THROW(handle->add("n", 1), Error);
    EXPECT_EQ(this->store->get("n"), "9223372036854775807");
}

TYPED_TEST(StoreSuite, CheckSaysWhetherAllKeysAreThere) {
    EXPECT_TRUE(this->store->check({}));
    EXPECT_FALSE(this->store->check({"a"}));
    this->store->set("a", "");
    EXPECT_TRUE(this->store->check({"a", "a"}));
    EXPECT_FALSE(this->store->check({"a", "b"}));
}

TYPED_TEST(StoreSuite, CompareSetStoresOnlyWhatWasExpected) {
    auto& mine = *this->store;
    EXPECT_EQ(mine.compare_set("k", "expected", "new"), "expected");  // absent: PyTorch's lie
    EXPECT_FALSE(mine.check({"k"}));
    EXPECT_EQ(mine.compare_set("k", "", "first"), "first");
    EXPECT_EQ(mine.compare_set("k", "", "second"), "first");
    EXPECT_EQ(mine.compare_set("k", "other", "second"), "first");
    EXPECT_EQ(mine.compare_set("k", "first", "second"), "second");
    EXPECT_EQ(mine.get("k"), "second");
}

TYPED_TEST(StoreSuite, DeleteKeySaysWhetherItWasThere) {
    this->store->set("k", "v");
    EXPECT_TRUE(this->store->delete_key("k"));
    EXPECT_FALSE(this->store->delete_key("k"));
    EXPECT_FALSE(this->store->check({"k"}));
    EXPECT_EQ(this->store->add("k", 1), 1);
}

TYPED_TEST(StoreSuite, AppendAddsAtTheEnd) {
    this->store->append("k", "ab");
    this->store->append("k", "");
    this->store->append("k", "c");
    EXPECT_EQ(this->store->get("k"), "abc");
}

TYPED_TEST(StoreSuite, MultiGetWaitsForAllAndKeepsTheirOrder) {
    const auto other = this->kind.open();
    auto values = std::async(std::launch::async, [&] {
        return this->store->multi_get({"b", "a", "b"});
    });
    other->set("a", "1");
    other->set("b", "2");
    EXPECT_EQ(values.get(), (StoreValues{"2", "1", "2"}));
    EXPECT_EQ(this->store->multi_get({}), StoreValues{});
    EXPECT_THAT(timeout_text([&] {
                    this->store->multi_get({"a", "never"}, brief);
                }),
                HasSubstr("never"));
}

TYPED_TEST(StoreSuite, MultiSetStoresAllPairs) {
    this->store->multi_set({"a", "b", "a"}, {"1", "2", "3"});
    EXPECT_EQ(this->store->multi_get({"a", "b"}), (StoreValues{"3", "2"}));
    this->store->multi_set({}, {});
    EXPECT_THROW(this->store->multi_set({"a"}, {}), UsageError);
}

TYPED_TEST(StoreSuite, NumKeysCountsEachKeyOnce) {
    const auto before = this->store->num_keys();
    this->store->set("a", "1");
    this->store->set("a", "2");
    this->store->add("b", 1);
    EXPECT_EQ(this->store->num_keys(), before + 2);
    this->store->delete_key("a");
    EXPECT_EQ(this->store->num_keys(), before + 1);
}

TYPED_TEST(StoreSuite, TheLargestValueFitsAndOneByteMoreIsRefused) {
    const std::string largest(8 << 20, 'v');
    this->store->set("k", largest);
    EXPECT_TRUE(this->store->get("k") == largest);
    EXPECT_THROW(this->store->set("k", largest + "v"), UsageError);
    EXPECT_THROW(this->store->append("l", largest + "v"), UsageError);
    EXPECT_THROW(this->store->multi_set({"l"}, {largest + "v"}), UsageError);
    EXPECT_THROW(this->store->compare_set("l", "", largest + "v"), UsageError);
    EXPECT_FALSE(this->store->check({"l"}));
}

TYPED_TEST(StoreSuite, AKeyThatIsTooLongIsRefused) {
    const std::string longest(8192 - 16, 'k');  // room for prefixes
    this->store->set(longest, "v");
    EXPECT_EQ(this->store->get(longest), "v");
    const std::string key(8193, 'k');
    EXPECT_THROW(this->store->set(key, "v"), UsageError);
    EXPECT_THROW(this->store->get(key), UsageError);
    EXPECT_THROW(this->store->try_get(key), UsageError);
    EXPECT_THROW(this->store->add(key, 1), UsageError);
    EXPECT_THROW(this->store->check({key}), UsageError);
    EXPECT_THROW(this->store->wait({key}), UsageError);
    EXPECT_THROW(this->store->compare_set(key, "", ""), UsageError);
    EXPECT_THROW(this->store->delete_key(key), UsageError);
    EXPECT_THROW(this->store->append(key, "v"), UsageError);
    EXPECT_THROW(this->store->multi_get({key}), UsageError);
    EXPECT_THROW(this->store->multi_set({key}, {"v"}), UsageError);
}

TYPED_TEST(StoreSuite, ABlockedWaitDelaysNoOtherThread) {
    std::vector<std::future<std::string>> blocked;
    for (int i = 0; i < 3; ++i) {
        blocked.push_back(std::async(std::launch::async, [&] { return this->store->get("go"); }));
    }
    // Were these held up by the waits, "go" would come too late for them.
    for (int i = 0; i < 100; ++i) {
        this->store->set("k", std::to_string(i));
        ASSERT_EQ(this->store->get("k"), std::to_string(i));
        ASSERT_EQ(this->store->add("n", 1), i + 1);
    }
    this->store->set("go", "went");
    for (auto& value : blocked) EXPECT_EQ(value.get(), "went");
}

TYPED_TEST(StoreSuite, TwoThreadsThatAddLoseNothing) {
    constexpr int adds = 500;
    const auto hammer = [](Store& handle) {
        std::set<std::int64_t> sums;
        for (int i = 0; i < adds; ++i) sums.insert(handle.add("n", 1));
        return sums;
    };
    const auto other = this->kind.open();
    auto theirs = std::async(std::launch::async, [&] { return hammer(*other); });
    auto sums = hammer(*this->store);
    sums.merge(theirs.get());
    EXPECT_EQ(sums.size(), 2U * adds);  // each sum was returned once
    EXPECT_EQ(this->store->add("n", 0), 2 * adds);
}

TYPED_TEST(StoreSuite, CompareSetElectsOneOfMany) {
    std::vector<std::future<std::string>> elected;
    for (int rank = 0; rank < 4; ++rank) {
        elected.push_back(std::async(std::launch::async, [this, rank] {
            return this->kind.open()->compare_set("leader", "", "rank " + std::to_string(rank));
        }));
    }
    std::set<std::string> leaders;
    for (auto& leader : elected) leaders.insert(leader.get());
    EXPECT_EQ(leaders.size(), 1U);
    EXPECT_EQ(this->store->get("leader"), *leaders.begin());
}

using Model = std::map<std::string, std::string>;

// One call on `store`, checked against and then done to the model.
void random_call(Store& store, Model& model, const std::string& key, std::mt19937& random) {
    const auto value = std::to_string(random() % 100);
    const auto held = model.find(key);
    const bool there = held != model.end();
    const auto now = there ? std::optional{held->second} : std::nullopt;
    switch (random() % 6) {
        case 0:
            store.set(key, model[key] = value);
            break;
        case 1:
            store.append(key, value);
            model[key] += value;
            break;
        case 2:
            ASSERT_EQ(store.delete_key(key), there);
            model.erase(key);
            break;
        case 3:
            ASSERT_EQ(store.try_get(key), now);
            break;
        case 4:
            ASSERT_EQ(store.compare_set(key, now.value_or(""), value), value);
            model[key] = value;
            break;
        case 5:
            ASSERT_EQ(store.check({key}), there);
            break;
    }
}

TYPED_TEST(StoreSuite, AgreesWithAPlainMapUnderRandomCallsOfManyThreads) {
    constexpr unsigned threads = 4;
    constexpr int calls = 300;
    const auto seed = random_seed();
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([this, i, seed] {
            // Each thread's keys are its own, so that its model says what each call must return.
            std::mt19937 random{seed + i};
            const auto handle = this->kind.open();
            const auto own = "t" + std::to_string(i) + "/";
            Model model;
            for (int call = 0; call < calls; ++call) {
                random_call(*handle, model, own + std::to_string(random() % 5), random);
                handle->add("calls", 1);
            }
            for (const auto& [key, value] : model) EXPECT_EQ(handle->get(key), value);
        });
    }
    for (auto& thread : running) thread.join();
    EXPECT_EQ(this->store->get("calls"), std::to_string(threads * calls));
}

TEST(PrefixStore, EachKeyStandsForThePrefixedOne) {
    const auto inner = make_memory_store();
    const auto outer = make_prefix_store("p", inner);
    const auto nested = make_prefix_store("q", outer);
    outer->set("k", "1");
    nested->multi_set({"k"}, {"2"});
    EXPECT_EQ(inner->multi_get({"p/k", "p/q/k"}), (StoreValues{"1", "2"}));
    EXPECT_FALSE(inner->check({"k"}));
    EXPECT_EQ(nested->num_keys(), 2);
}

TEST(PrefixStore, NeedsAStore) { EXPECT_THROW(make_prefix_store("p", nullptr), UsageError); }

}  // namespace
}  // namespace ddp
