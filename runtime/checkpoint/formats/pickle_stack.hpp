// The stack of the machine that reads a pickle, as Python's pickletools describes it: numbers,
// containers, marks and memo. It knows nothing of torch. Values live in one array and refer to
// each other by number: no recursion, and no cycle to free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/formats/pickle.hpp"

namespace ddp::checkpoint {

class PickleStack {
protected:
    using Kind = PickleValue::Kind;

    explicit PickleStack(std::span<const std::byte> text)
        : text_(reinterpret_cast<const char*>(text.data()), text.size()) {}

    // Throws CheckpointError: the pickle `what`.
    [[noreturn]] static void refuse(const std::string& what);

    // False for an instruction that is not about the stack alone.
    bool step(unsigned char instruction) {
        return push_number(instruction) || push_container(instruction) ||
               change_container(instruction) || use_memo(instruction);
    }

    std::string_view take(std::uint64_t count) {
        if (count > text_.size() - at_) refuse("ends too early");
        return text_.substr(std::exchange(at_, at_ + count), count);
    }
    std::string_view take_line() {
        const std::size_t end = text_.find('\n', at_);
        if (end == std::string_view::npos) refuse("ends too early");
        const auto line = take(end - at_);
        take(1);
        return line;
    }
    // Both lines, and the line break between them.
    std::string_view take_two_lines() {
        const std::size_t begin = at_;
        take_line();
        take_line();
        return text_.substr(begin, at_ - begin - 1);
    }
    template <class T>
    T take_number() {
        T value{};
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }

    PickleValue& value(PickleId id) { return pickle_.values[id]; }
    const PickleValue& value(PickleId id) const { return pickle_.values[id]; }
    const PickleValue& require(PickleId id, Kind kind, const char* what) const {
        if (value(id).kind != kind) refuse(std::string("has no ") + what + " where one belongs");
        return value(id);
    }
    void push(PickleValue made) {
        stack_.push_back(static_cast<PickleId>(pickle_.values.size()));
        pickle_.values.push_back(std::move(made));
    }
    PickleId top() const {
        // What lies under a mark belongs to another container.
        if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
            refuse("takes a value that is not there");
        }
        return stack_.back();
    }
    PickleId pop() {
        const PickleId id = top();
        stack_.pop_back();
        return id;
    }
    std::vector<PickleId> pop(std::size_t count) {
        std::vector<PickleId> items(count);
        for (std::size_t i = count; i-- > 0;) items[i] = pop();
        return items;
    }
    // Goes on with a value that there is already.
    void push_again(PickleId id) { stack_.push_back(id); }

    Pickle pickle_;

private:
    bool push_number(unsigned char instruction);
    bool push_container(unsigned char instruction);
    bool change_container(unsigned char instruction);
    bool use_memo(unsigned char instruction);
    std::vector<PickleId> pop_to_mark();
    void add_items(Kind kind, const std::vector<PickleId>& items);

    std::string_view text_;
    std::size_t at_ = 0;
    std::vector<PickleId> stack_;
    std::vector<std::size_t> marks_;  // sizes of the stack
    std::unordered_map<std::uint32_t, PickleId> memo_;
};

}  // namespace ddp::checkpoint
