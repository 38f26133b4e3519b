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

#include "store/patient.hpp"
#include "support/seed.hpp"
#include "temp_dir.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using store_test::patient;
using store_test::random_seed;
using testing::HasSubstr;
using testing::Not;

constexpr Store::Timeout brief = 50ms;  // for what never comes

// open() gives one more handle on the same store, as another rank would have.
class Kind {
public:
    virtual ~Kind() = default;
    virtual std::shared_ptr<Store> open() = 0;
};

class Memory : public Kind {
public:
    std::shared_ptr<Store> open() override { return store_; }

private:
    std::shared_ptr<Store> store_ = make_memory_store(patient);
};

class File : public Kind {
public:
    std::shared_ptr<Store> open() override { return make_file_store(dir_.file("store"), patient); }

private:
    store_test::TempDir dir_;
};

class Tcp : public Kind {
public:
    std::shared_ptr<Store> open() override {
        return connect_tcp_store({"127.0.0.1", server_.port()}, patient);
    }

private:
    TcpStoreServer server_{{"127.0.0.1", 0}};
};

class Prefixed : public Kind {
public:
    explicit Prefixed(std::unique_ptr<Kind> inner) : inner_(std::move(inner)) {}
    std::shared_ptr<Store> open() override { return make_prefix_store("group/1", inner_->open()); }

private:
    std::unique_ptr<Kind> inner_;
};

struct NamedKind {
    const char* name;
    std::unique_ptr<Kind> (*make)();
};
void PrintTo(const NamedKind& kind, std::ostream* out) { *out << kind.name; }

// One instance of the suite is compiled for all kinds.
class StoreSuite : public testing::TestWithParam<NamedKind> {
protected:
    std::unique_ptr<Kind> kind = GetParam().make();
    std::shared_ptr<Store> store = kind->open();
};

INSTANTIATE_TEST_SUITE_P(
    Every, StoreSuite,
    testing::Values(
        NamedKind{"MemoryStore",
                  []() -> std::unique_ptr<Kind> { return std::make_unique<Memory>(); }},
        NamedKind{"FileStore", []() -> std::unique_ptr<Kind> { return std::make_unique<File>(); }},
        NamedKind{"TcpStore", []() -> std::unique_ptr<Kind> { return std::make_unique<Tcp>(); }},
        NamedKind{"PrefixOverMemoryStore",
                  []() -> std::unique_ptr<Kind> {
                      return std::make_unique<Prefixed>(std::make_unique<Memory>());
                  }},
        NamedKind{"PrefixOverTcpStore",
                  []() -> std::unique_ptr<Kind> {
                      return std::make_unique<Prefixed>(std::make_unique<Tcp>());
                  }}),
    [](const auto& kind) { return std::string(kind.param.name); });

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

TEST_P(StoreSuite, GetReturnsWhatSetStored) {
    auto& mine = *store;
    const std::string bytes{"a\0b\xFF\n", 5};
    mine.set("k", bytes);
    EXPECT_EQ(mine.get("k"), bytes);
    mine.set("k", "");
    EXPECT_EQ(mine.get("k"), "");
    mine.set("", "the empty key");
    EXPECT_EQ(mine.get(""), "the empty key");
}

TEST_P(StoreSuite, ASecondHandleSeesWhatTheFirstStored) {
    const auto other = kind->open();
    store->set("k", "v");
    EXPECT_EQ(other->get("k"), "v");
    EXPECT_EQ(other->timeout(), patient);
}

TEST_P(StoreSuite, AHandleReadsItsOwnLastWrite) {
    for (int i = 0; i < 300; ++i) {
        store->set("k", std::to_string(i));
        ASSERT_EQ(store->get("k"), std::to_string(i));
    }
}

TEST_P(StoreSuite, GetWaitsUntilTheKeyIsSet) {
    const auto other = kind->open();
    auto value = std::async(std::launch::async, [&] { return store->get("late"); });
    other->set("early", "");
    other->set("late", "came");
    EXPECT_EQ(value.get(), "came");
}

TEST_P(StoreSuite, GetOfAKeyThatNeverComesNamesItAndTheTimeout) {
    const auto start = std::chrono::steady_clock::now();
    const auto text = timeout_text([&] { store->get("never", brief); });
    EXPECT_GE(std::chrono::steady_clock::now() - start, brief);
    EXPECT_THAT(text, HasSubstr("never]"));
    EXPECT_THAT(text, HasSubstr("were not set within 50 ms"));
}

TEST_P(StoreSuite, WaitReturnsOnceAllKeysAreThere) {
    const auto other = kind->open();
    std::atomic<bool> done = false;
    auto waiting = std::async(std::launch::async, [&] {
        store->wait({"a", "b", "a"});
        done = true;
    });
    other->set("a", "");
    EXPECT_FALSE(done);
    other->add("b", 1);
    waiting.get();
    EXPECT_TRUE(done);
}

TEST_P(StoreSuite, ATimedOutWaitNamesOnlyTheMissingKeys) {
    store->set("there", "");
    const auto text = timeout_text([&] { store->wait({"absent1", "there", "absent2"}, brief); });
    EXPECT_THAT(text, HasSubstr("absent1"));
    EXPECT_THAT(text, HasSubstr("absent2"));
    EXPECT_THAT(text, Not(HasSubstr("there")));
}

TEST_P(StoreSuite, ATimeoutOfZeroOnlyLooks) {
    store->set("k", "v");
    EXPECT_EQ(store->get("k", 0ms), "v");
    EXPECT_THROW(store->wait({"absent"}, 0ms), TimeoutError);
    EXPECT_THROW(store->wait({"absent"}, -1ms), TimeoutError);
    store->wait({}, 0ms);
}

TEST_P(StoreSuite, TheStoreGoesOnAfterATimeout) {
    EXPECT_THROW(store->get("k", brief), TimeoutError);
    store->set("k", "v");
    EXPECT_EQ(store->get("k", patient), "v");
}

TEST_P(StoreSuite, TryGetDoesNotWait) {
    EXPECT_EQ(store->try_get("k"), std::nullopt);
    store->set("k", "");
    EXPECT_EQ(store->try_get("k"), "");
}

TEST_P(StoreSuite, AddSumsAndStoresADecimalNumber) {
    EXPECT_EQ(store->add("n", 5), 5);
    EXPECT_EQ(store->add("n", -12), -7);
    EXPECT_EQ(store->add("n", 0), -7);
    EXPECT_EQ(store->get("n"), "-7");
    store->set("n", "41");
    EXPECT_EQ(store->add("n", 1), 42);
    EXPECT_EQ(store->add("m", INT64_MIN), INT64_MIN);
}

TEST_P(StoreSuite, AddToWhatIsNoNumberIsAnError) {
    for (const std::string text : {"", "twelve", "1x", "1 ", "99999999999999999999"}) {
        const auto handle = kind->open();  // over TCP the error costs the connection
        handle->set("n", text);
        EXPECT_THROW(handle->add("n", 1), Error) << text;
    }
    const auto handle = kind->open();
    handle->set("n", "9223372036854775807");
    EXPECT_THROW(handle->add("n", 1), Error);
    EXPECT_EQ(store->get("n"), "9223372036854775807");
}

TEST_P(StoreSuite, CheckSaysWhetherAllKeysAreThere) {
    EXPECT_TRUE(store->check({}));
    EXPECT_FALSE(store->check({"a"}));
    store->set("a", "");
    EXPECT_TRUE(store->check({"a", "a"}));
    EXPECT_FALSE(store->check({"a", "b"}));
}

TEST_P(StoreSuite, CompareSetStoresOnlyWhatWasExpected) {
    auto& mine = *store;
    EXPECT_EQ(mine.compare_set("k", "expected", "new"), "expected");  // absent: PyTorch's lie
    EXPECT_FALSE(mine.check({"k"}));
    EXPECT_EQ(mine.compare_set("k", "", "first"), "first");
    EXPECT_EQ(mine.compare_set("k", "", "second"), "first");
    EXPECT_EQ(mine.compare_set("k", "other", "second"), "first");
    EXPECT_EQ(mine.compare_set("k", "first", "second"), "second");
    EXPECT_EQ(mine.get("k"), "second");
}

TEST_P(StoreSuite, DeleteKeySaysWhetherItWasThere) {
    store->set("k", "v");
    EXPECT_TRUE(store->delete_key("k"));
    EXPECT_FALSE(store->delete_key("k"));
    EXPECT_FALSE(store->check({"k"}));
    EXPECT_EQ(store->add("k", 1), 1);
}

TEST_P(StoreSuite, AppendAddsAtTheEnd) {
    store->append("k", "ab");
    store->append("k", "");
    store->append("k", "c");
    EXPECT_EQ(store->get("k"), "abc");
}

TEST_P(StoreSuite, MultiGetWaitsForAllAndKeepsTheirOrder) {
    const auto other = kind->open();
    auto values = std::async(std::launch::async, [&] { return store->multi_get({"b", "a", "b"}); });
    other->set("a", "1");
    other->set("b", "2");
    EXPECT_EQ(values.get(), (StoreValues{"2", "1", "2"}));
    EXPECT_EQ(store->multi_get({}), StoreValues{});
    EXPECT_THAT(timeout_text([&] { store->multi_get({"a", "never"}, brief); }), HasSubstr("never"));
}

TEST_P(StoreSuite, MultiSetStoresAllPairs) {
    store->multi_set({"a", "b", "a"}, {"1", "2", "3"});
    EXPECT_EQ(store->multi_get({"a", "b"}), (StoreValues{"3", "2"}));
    store->multi_set({}, {});
    EXPECT_THROW(store->multi_set({"a"}, {}), UsageError);
}

TEST_P(StoreSuite, NumKeysCountsEachKeyOnce) {
    const auto before = store->num_keys();
    store->set("a", "1");
    store->set("a", "2");
    store->add("b", 1);
    EXPECT_EQ(store->num_keys(), before + 2);
    store->delete_key("a");
    EXPECT_EQ(store->num_keys(), before + 1);
}

TEST_P(StoreSuite, TheLargestValueFitsAndOneByteMoreIsRefused) {
    const std::string largest(8 << 20, 'v');
    store->set("k", largest);
    EXPECT_TRUE(store->get("k") == largest);
    EXPECT_THROW(store->set("k", largest + "v"), UsageError);
    EXPECT_THROW(store->append("l", largest + "v"), UsageError);
    EXPECT_THROW(store->multi_set({"l"}, {largest + "v"}), UsageError);
    EXPECT_THROW(store->compare_set("l", "", largest + "v"), UsageError);
    EXPECT_FALSE(store->check({"l"}));
}

TEST_P(StoreSuite, AKeyThatIsTooLongIsRefused) {
    const std::string longest(8192 - 16, 'k');  // room for prefixes
    store->set(longest, "v");
    EXPECT_EQ(store->get(longest), "v");
    const std::string key(8193, 'k');
    EXPECT_THROW(store->set(key, "v"), UsageError);
    EXPECT_THROW(store->get(key), UsageError);
    EXPECT_THROW(store->try_get(key), UsageError);
    EXPECT_THROW(store->add(key, 1), UsageError);
    EXPECT_THROW(store->check({key}), UsageError);
    EXPECT_THROW(store->wait({key}), UsageError);
    EXPECT_THROW(store->compare_set(key, "", ""), UsageError);
    EXPECT_THROW(store->delete_key(key), UsageError);
    EXPECT_THROW(store->append(key, "v"), UsageError);
    EXPECT_THROW(store->multi_get({key}), UsageError);
    EXPECT_THROW(store->multi_set({key}, {"v"}), UsageError);
}

TEST_P(StoreSuite, ABlockedWaitDelaysNoOtherThread) {
    std::vector<std::future<std::string>> blocked;
    for (int i = 0; i < 3; ++i) {
        blocked.push_back(std::async(std::launch::async, [&] { return store->get("go"); }));
    }
    // Were these held up by the waits, "go" would come too late for them.
    for (int i = 0; i < 100; ++i) {
        store->set("k", std::to_string(i));
        ASSERT_EQ(store->get("k"), std::to_string(i));
        ASSERT_EQ(store->add("n", 1), i + 1);
    }
    store->set("go", "went");
    for (auto& value : blocked) EXPECT_EQ(value.get(), "went");
}

TEST_P(StoreSuite, TwoThreadsThatAddLoseNothing) {
    constexpr int adds = 500;
    const auto hammer = [](Store& handle) {
        std::set<std::int64_t> sums;
        for (int i = 0; i < adds; ++i) sums.insert(handle.add("n", 1));
        return sums;
    };
    const auto other = kind->open();
    auto theirs = std::async(std::launch::async, [&] { return hammer(*other); });
    auto sums = hammer(*store);
    sums.merge(theirs.get());
    EXPECT_EQ(sums.size(), 2U * adds);  // each sum was returned once
    EXPECT_EQ(store->add("n", 0), 2 * adds);
}

TEST_P(StoreSuite, CompareSetElectsOneOfMany) {
    std::vector<std::future<std::string>> elected;
    for (int rank = 0; rank < 4; ++rank) {
        elected.push_back(std::async(std::launch::async, [this, rank] {
            return kind->open()->compare_set("leader", "", "rank " + std::to_string(rank));
        }));
    }
    std::set<std::string> leaders;
    for (auto& leader : elected) leaders.insert(leader.get());
    EXPECT_EQ(leaders.size(), 1U);
    EXPECT_EQ(store->get("leader"), *leaders.begin());
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

TEST_P(StoreSuite, AgreesWithAPlainMapUnderRandomCallsOfManyThreads) {
    constexpr unsigned threads = 4;
    constexpr int calls = 300;
    const auto seed = random_seed();
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([this, i, seed] {
            // Each thread's keys are its own, so that its model says what each call must return.
            std::mt19937 random{seed + i};
            const auto handle = kind->open();
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
    EXPECT_EQ(store->get("calls"), std::to_string(threads * calls));
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
