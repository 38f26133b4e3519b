// The store of one process: a map, a mutex and a condition variable.
// Invariant: every change is made under the mutex and followed by a wake-up of all who wait.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <condition_variable>
#include <mutex>
#include <type_traits>

#include "base/deadline.hpp"
#include "store/limits.hpp"
#include "store/server/store_map.hpp"

namespace ddp {
namespace store {
namespace {

class MemoryStore final : public Store {
public:
    explicit MemoryStore(Timeout timeout) : timeout_(timeout) {}

    using Store::get;
    using Store::multi_get;
    using Store::wait;

    void set(const std::string& key, const std::string& value) override {
        check_value_bytes(key, value.size());
        change(key, [&](StoreMap& map) { map.set(key, value); });
    }

    std::string get(const std::string& key, Timeout timeout) override {
        return std::move(multi_get({key}, timeout).front());
    }

    std::optional<std::string> try_get(const std::string& key) override {
        check_key(key);
        const std::lock_guard lock{mutex_};
        const auto* held = map_.find(key);
        return held == nullptr ? std::nullopt : std::optional{*held};
    }

    std::int64_t add(const std::string& key, std::int64_t amount) override {
        return change(key, [&](StoreMap& map) { return map.add(key, amount); });
    }

    bool check(const StoreKeys& keys) override {
        check_keys(keys);
        const std::lock_guard lock{mutex_};
        return map_.missing(keys).empty();
    }

    void wait(const StoreKeys& keys, Timeout timeout) override { wait_and_lock(keys, timeout); }

    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired) override {
        check_value_bytes(key, desired.size());
        return change(key, [&](StoreMap& map) { return map.compare_set(key, expected, desired); });
    }

    bool delete_key(const std::string& key) override {
        return change(key, [&](StoreMap& map) { return map.erase(key); });
    }

    void append(const std::string& key, const std::string& value) override {
        check_value_bytes(key, value.size());
        change(key, [&](StoreMap& map) { map.append(key, value); });
    }

    StoreValues multi_get(const StoreKeys& keys, Timeout timeout) override {
        const auto lock = wait_and_lock(keys, timeout);
        StoreValues values;
        values.reserve(keys.size());
        for (const auto& key : keys) values.push_back(*map_.find(key));
        return values;
    }

    void multi_set(const StoreKeys& keys, const StoreValues& values) override {
        check_pairs(keys, values);
        const std::lock_guard lock{mutex_};
        for (std::size_t i = 0; i < keys.size(); ++i) map_.set(keys[i], values[i]);
        changed_.notify_all();
    }

    std::int64_t num_keys() override {
        const std::lock_guard lock{mutex_};
        return static_cast<std::int64_t>(map_.size());
    }

    Timeout timeout() const override { return timeout_; }

private:
    template <class Change>
    std::invoke_result_t<Change, StoreMap&> change(const std::string& key, Change change_map) {
        check_key(key);
        const std::lock_guard lock{mutex_};
        changed_.notify_all();
        return change_map(map_);
    }

    // Returns with the mutex held and all keys there.
    std::unique_lock<std::mutex> wait_and_lock(const StoreKeys& keys, Timeout timeout) {
        check_keys(keys);
        const auto deadline = base::Deadline::after(timeout);
        std::unique_lock lock{mutex_};
        const auto all_there = [&] { return map_.missing(keys).empty(); };
        if (!changed_.wait_until(lock, deadline.end(), all_there)) {
            throw TimeoutError{not_set_message(map_.missing(keys), timeout, "")};
        }
        return lock;
    }

    const Timeout timeout_;
    std::mutex mutex_;
    std::condition_variable changed_;
    StoreMap map_;
};

}  // namespace
}  // namespace store

std::shared_ptr<Store> make_memory_store(Store::Timeout timeout) {
    return std::make_shared<store::MemoryStore>(timeout);
}

}  // namespace ddp
