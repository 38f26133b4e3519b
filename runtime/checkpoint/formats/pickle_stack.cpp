#include "checkpoint/formats/pickle_stack.hpp"

#include <ddp/error.hpp>

#include <bit>

namespace ddp::checkpoint {

void PickleStack::refuse(const std::string& what) { throw CheckpointError("its pickle " + what); }

bool PickleStack::push_number(unsigned char instruction) {
    const auto integer = [this](std::int64_t number) {
        push({.kind = Kind::integer, .integer = number});
        return true;
    };
    switch (instruction) {
        case 'N':  // NONE
            push({});
            return true;
        case 0x88:  // NEWTRUE
        case 0x89:  // NEWFALSE
            push({.kind = Kind::boolean, .integer = instruction == 0x88 ? 1 : 0});
            return true;
        case 'J':  // BININT
            return integer(take_number<std::int32_t>());
        case 'K':  // BININT1
            return integer(take_number<std::uint8_t>());
        case 'M':  // BININT2
            return integer(take_number<std::uint16_t>());
        case 0x8a: {  // LONG1
            const std::size_t length = take_number<std::uint8_t>();
            if (length > sizeof(std::int64_t)) refuse("has an integer of more than 64 bits");
            const std::string_view bytes = take(length);
            const bool negative = length > 0 && (bytes.back() & 0x80) != 0;
            std::int64_t number = negative ? -1 : 0;
            if (length > 0) std::memcpy(&number, bytes.data(), length);
            return integer(number);
        }
        case 'G': {  // BINFLOAT, the only number that is big-endian
            const auto bits = __builtin_bswap64(take_number<std::uint64_t>());
            push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
            return true;
        }
        default:
            return false;
    }
}

bool PickleStack::push_container(unsigned char instruction) {
    const auto tuple = [this](std::vector<PickleId> items) {
        push({.kind = Kind::tuple, .items = std::move(items)});
        return true;
    };
    switch (instruction) {
        case '(':  // MARK
            marks_.push_back(stack_.size());
            return true;
        case ')':  // EMPTY_TUPLE
            return tuple({});
        case 0x85:  // TUPLE1
        case 0x86:  // TUPLE2
        case 0x87:  // TUPLE3
            return tuple(pop(instruction - 0x84U));
        case 't':  // TUPLE
            return tuple(pop_to_mark());
        case ']':  // EMPTY_LIST
            push({.kind = Kind::list});
            return true;
        case '}':  // EMPTY_DICT
            push({.kind = Kind::dict});
            return true;
        default:
            return false;
    }
}

bool PickleStack::change_container(unsigned char instruction) {
    switch (instruction) {
        case 's':  // SETITEM
            add_items(Kind::dict, pop(2));
            return true;
        case 'u':  // SETITEMS
            add_items(Kind::dict, pop_to_mark());
            return true;
        case 'a':  // APPEND
            add_items(Kind::list, pop(1));
            return true;
        case 'e':  // APPENDS
            add_items(Kind::list, pop_to_mark());
            return true;
        default:
            return false;
    }
}

bool PickleStack::use_memo(unsigned char instruction) {
    const auto get = [this](std::uint32_t index) {
        const auto found = memo_.find(index);
        if (found == memo_.end()) refuse("takes a value from memory that is not there");
        stack_.push_back(found->second);
        return true;
    };
    switch (instruction) {
        case 'q':  // BINPUT
            memo_[take_number<std::uint8_t>()] = top();
            return true;
        case 'r':  // LONG_BINPUT
            memo_[take_number<std::uint32_t>()] = top();
            return true;
        case 'h':  // BINGET
            return get(take_number<std::uint8_t>());
        case 'j':  // LONG_BINGET
            return get(take_number<std::uint32_t>());
        default:
            return false;
    }
}

std::vector<PickleId> PickleStack::pop_to_mark() {
    if (marks_.empty()) refuse("takes a mark that is not there");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
}

void PickleStack::add_items(Kind kind, const std::vector<PickleId>& items) {
    const PickleId container = top();
    require(container, kind, kind == Kind::dict ? "dictionary" : "list");
    if (kind == Kind::dict && items.size() % 2 != 0) refuse("has a key without a value");
    auto& into = value(container).items;
    into.insert(into.end(), items.begin(), items.end());
}

}  // namespace ddp::checkpoint
