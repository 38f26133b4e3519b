// DetachedValues: what the values cost that the map no longer holds but unsent replies still do.
// Invariant: a value is counted once, however many replies share it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "store/server/reply.hpp"

namespace ddp::store {

class DetachedValues {
public:
    void add(const SharedValue& value) {
        if (value->is_detached) return;
        value->is_detached = true;
        bytes_ += cost(*value);
        values_.push_back(value);
        if (values_.size() >= 2 * counted_ + 1024) recount();
    }
    // At most that many bytes; exactly that many after recount().
    std::size_t bytes() const { return bytes_; }
    void recount() {
        bytes_ = 0;
        std::erase_if(values_, [this](const std::weak_ptr<Value>& held) {
            const auto value = held.lock();
            if (value) bytes_ += cost(*value);
            return !value;
        });
        counted_ = values_.size();
    }

private:
    static std::size_t cost(const Value& value) { return value.bytes.size() + 128; }

    std::vector<std::weak_ptr<Value>> values_;
    std::size_t counted_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace ddp::store
