// A store seen through a prefix: each key k stands for "prefix/k", so that groups and attempts
// share one store without sharing keys. Invariant: it keeps nothing itself; deadlines and errors
// are those of the store underneath.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <utility>

namespace ddp {
namespace store {
namespace {

class PrefixStore final : public Store {
public:
    PrefixStore(std::string prefix, std::shared_ptr<Store> store)
        : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
        if (!store_) throw UsageError{"store: make_prefix_store was given no store"};
    }

    using Store::get;
    using Store::multi_get;
    using Store::wait;

    void set(const std::string& key, const std::string& value) override {
        store_->set(inner(key), value);
    }
    std::string get(const std::string& key, Timeout timeout) override {
        return store_->get(inner(key), timeout);
    }
    std::optional<std::string> try_get(const std::string& key) override {
        return store_->try_get(inner(key));
    }
    std::int64_t add(const std::string& key, std::int64_t amount) override {
        return store_->add(inner(key), amount);
    }
    bool check(const StoreKeys& keys) override { return store_->check(inner(keys)); }
    void wait(const StoreKeys& keys, Timeout timeout) override {
        store_->wait(inner(keys), timeout);
    }
    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired) override {
        return store_->compare_set(inner(key), expected, desired);
    }
    bool delete_key(const std::string& key) override { return store_->delete_key(inner(key)); }
    void append(const std::string& key, const std::string& value) override {
        store_->append(inner(key), value);
    }
    StoreValues multi_get(const StoreKeys& keys, Timeout timeout) override {
        return store_->multi_get(inner(keys), timeout);
    }
    void multi_set(const StoreKeys& keys, const StoreValues& values) override {
        store_->multi_set(inner(keys), values);
    }
    std::int64_t num_keys() override { return store_->num_keys(); }
    Timeout timeout() const override { return store_->timeout(); }

private:
    std::string inner(const std::string& key) const { return prefix_ + key; }
    StoreKeys inner(const StoreKeys& keys) const {
        StoreKeys prefixed;
        prefixed.reserve(keys.size());
        for (const auto& key : keys) prefixed.push_back(inner(key));
        return prefixed;
    }

    const std::string prefix_;
    const std::shared_ptr<Store> store_;
};

}  // namespace
}  // namespace store

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store) {
    return std::make_shared<store::PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace ddp
