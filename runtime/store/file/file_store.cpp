// The store in a file: every process keeps a map of what it has read and reads on before each
// operation. Waits poll. Invariant: the map is only ever changed by reading the file, so it can lag
// behind but never disagree.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <algorithm>
#include <mutex>
#include <thread>
#include <type_traits>

#include "base/deadline.hpp"
#include "store/file/file_log.hpp"
#include "store/limits.hpp"

namespace ddp {
namespace store {
namespace {

using base::Deadline;

constexpr std::chrono::microseconds first_poll_pause{500};
constexpr std::chrono::microseconds longest_poll_pause{10'000};
// A wait with a short timeout still gives other processes this long to finish their operation.
constexpr std::chrono::milliseconds lock_grace{1000};

class FileStore final : public Store {
public:
    FileStore(std::string path, Timeout timeout) : timeout_(timeout), log_(std::move(path)) {
        // Finds out now, not later, that the file is something else.
        read([](const StoreMap&) {});
    }

    using Store::get;
    using Store::multi_get;
    using Store::wait;

    void set(const std::string& key, const std::string& value) override {
        multi_set({key}, {value});
    }

    std::string get(const std::string& key, Timeout timeout) override {
        return std::move(multi_get({key}, timeout).front());
    }

    std::optional<std::string> try_get(const std::string& key) override {
        check_key(key);
        return read([&](const StoreMap& map) {
            const auto* held = map.find(key);
            return held == nullptr ? std::nullopt : std::optional{*held};
        });
    }

    std::int64_t add(const std::string& key, std::int64_t amount) override {
        check_key(key);
        return write([&](const StoreMap& map, std::string& changes) {
            const auto sum = sum_with(map.find(key), amount, key);
            append_change(changes, ChangeKind::set, key, std::to_string(sum));
            return sum;
        });
    }

    bool check(const StoreKeys& keys) override {
        check_keys(keys);
        return read([&](const StoreMap& map) { return map.missing(keys).empty(); });
    }

    void wait(const StoreKeys& keys, Timeout timeout) override {
        wait_then(keys, timeout, [](const StoreMap&) {});
    }

    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired) override {
        check_key(key);
        check_value_bytes(key, desired.size());
        return write([&](const StoreMap& map, std::string& changes) {
            auto swap = compare_and_swap(map.find(key), expected, desired);
            if (swap.stores) append_change(changes, ChangeKind::set, key, desired);
            return std::move(swap.returned);
        });
    }

    bool delete_key(const std::string& key) override {
        check_key(key);
        return write([&](const StoreMap& map, std::string& changes) {
            if (map.find(key) == nullptr) return false;
            append_change(changes, ChangeKind::erase, key, {});
            return true;
        });
    }

    void append(const std::string& key, const std::string& value) override {
        check_key(key);
        write([&](const StoreMap& map, std::string& changes) {
            const auto* held = map.find(key);
            check_value_bytes(key, value.size() + (held == nullptr ? 0 : held->size()));
            append_change(changes, ChangeKind::append, key, value);
            return true;
        });
    }

    StoreValues multi_get(const StoreKeys& keys, Timeout timeout) override {
        StoreValues values;
        wait_then(keys, timeout, [&](const StoreMap& map) {
            for (const auto& key : keys) values.push_back(*map.find(key));
        });
        return values;
    }

    void multi_set(const StoreKeys& keys, const StoreValues& values) override {
        check_pairs(keys, values);
        write([&](const StoreMap&, std::string& changes) {
            for (std::size_t i = 0; i < keys.size(); ++i) {
                append_change(changes, ChangeKind::set, keys[i], values[i]);
            }
            return true;
        });
    }

    std::int64_t num_keys() override {
        return read([](const StoreMap& map) { return static_cast<std::int64_t>(map.size()); });
    }

    Timeout timeout() const override { return timeout_; }

private:
    // `use(map)` on the newest state.
    template <class Use>
    std::invoke_result_t<Use, const StoreMap&> read(Use use) {
        return read(use, Deadline::after(timeout_));
    }
    template <class Use>
    std::invoke_result_t<Use, const StoreMap&> read(Use use, const Deadline& deadline) {
        const std::lock_guard lock{mutex_};
        const auto file_lock = log_.lock(FileLog::Access::read, deadline);
        log_.read_new(map_);
        return use(std::as_const(map_));
    }

    // `plan(map, changes)` on the newest state; then writes the changes it has put together, as one
    // record. Nothing is written when it throws.
    template <class Plan>
    std::invoke_result_t<Plan, const StoreMap&, std::string&> write(Plan plan) {
        const auto deadline = Deadline::after(timeout_);
        const std::lock_guard lock{mutex_};
        const auto file_lock = log_.lock(FileLog::Access::write, deadline);
        log_.read_new(map_);
        std::string changes;
        auto result = plan(std::as_const(map_), changes);
        if (!changes.empty()) log_.write(changes);
        return result;
    }

    // Waits for all keys, then `use(map)` on the state in which they are there.
    template <class Use>
    void wait_then(const StoreKeys& keys, Timeout timeout, Use use) {
        check_keys(keys);
        const auto deadline = Deadline::after(timeout);
        for (auto pause = first_poll_pause;; pause = std::min(2 * pause, longest_poll_pause)) {
            const bool last_look = deadline.passed();
            const auto look = [&](const StoreMap& map) {
                auto absent = map.missing(keys);
                if (absent.empty()) use(map);
                return absent;
            };
            const auto missing = read(look, Deadline::after(std::max(deadline.left(), lock_grace)));
            if (missing.empty()) return;
            if (last_look) throw TimeoutError{not_set_message(missing, timeout, log_.path())};
            std::this_thread::sleep_for(
                std::min<std::chrono::microseconds>(pause, deadline.left()));
        }
    }

    const Timeout timeout_;
    std::mutex mutex_;  // of all below; flock does not tell threads apart
    FileLog log_;
    StoreMap map_;
};

}  // namespace
}  // namespace store

std::shared_ptr<Store> make_file_store(std::string path, Store::Timeout timeout) {
    return std::make_shared<store::FileStore>(std::move(path), timeout);
}

}  // namespace ddp
