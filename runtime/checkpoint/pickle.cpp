// A stack machine, as Python's pickletools describes it, with the few instructions that a state
// dictionary needs. Values live in one array and refer to each other by number: no recursion, and
// no cycle to free.
#include "checkpoint/pickle.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

namespace ddp::checkpoint {

namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view ordered_dict = "collections\nOrderedDict";
constexpr std::string_view rebuild_tensor = "torch._utils\n_rebuild_tensor_v2";
constexpr std::string_view rebuild_parameter = "torch._utils\n_rebuild_parameter";
constexpr std::string_view torch_module = "torch\n";
constexpr std::string_view storage_suffix = "Storage";

[[noreturn]] void refuse(const std::string& what) { throw CheckpointError("its pickle " + what); }
[[noreturn]] void refuse_name(std::string_view function) {
    std::string name(function);
    std::ranges::replace(name, '\n', '.');
    refuse("uses " + name + ", which is no part of a state dictionary; in Python save " +
           "model.state_dict(), not the model");
}

class Machine {
public:
    explicit Machine(std::span<const std::byte> text)
        : text_(reinterpret_cast<const char*>(text.data()), text.size()) {}

    Pickle run() {
        while (!stopped_) step(static_cast<unsigned char>(take(1)[0]));
        return std::move(pickle_);
    }

private:
    void step(unsigned char instruction);
    bool push_number(unsigned char instruction);
    bool push_container(unsigned char instruction);
    bool change_container(unsigned char instruction);
    bool use_memory(unsigned char instruction);
    void call();
    void build_tensor(const std::vector<PickleId>& arguments);
    void load_storage();
    std::vector<std::int64_t> integers(PickleId tuple) const;

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
    std::vector<PickleId> pop_to_mark() {
        if (marks_.empty()) refuse("takes a mark that is not there");
        const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<PickleId> items(first, stack_.end());
        stack_.erase(first, stack_.end());
        marks_.pop_back();
        return items;
    }
    void add_items(Kind kind, const std::vector<PickleId>& items) {
        const PickleId container = top();
        require(container, kind, kind == Kind::dict ? "dictionary" : "list");
        if (kind == Kind::dict && items.size() % 2 != 0) refuse("has a key without a value");
        auto& into = value(container).items;
        into.insert(into.end(), items.begin(), items.end());
    }

    std::string_view text_;
    std::size_t at_ = 0;
    bool stopped_ = false;
    Pickle pickle_;
    std::vector<PickleId> stack_;
    std::vector<std::size_t> marks_;  // sizes of the stack
    std::unordered_map<std::uint32_t, PickleId> memory_;
};

void Machine::step(unsigned char instruction) {
    if (push_number(instruction) || push_container(instruction) || change_container(instruction) ||
        use_memory(instruction)) {
        return;
    }
    switch (instruction) {
        case 0x80: {  // PROTO
            const int protocol = static_cast<unsigned char>(take(1)[0]);
            if (protocol == 2) return;
            refuse("is of protocol " + std::to_string(protocol) +
                   "; torch.save writes 2 unless it is told otherwise");
        }
        case 'X': {  // BINUNICODE
            const auto length = take_number<std::uint32_t>();
            return push({.kind = Kind::text, .text = take(length)});
        }
        case 'c': {  // GLOBAL
            const std::size_t begin = at_;
            take_line();
            take_line();
            const std::string_view name = text_.substr(begin, at_ - begin - 1);
            const bool storage = name.starts_with(torch_module) && name.ends_with(storage_suffix);
            if (!storage && name != ordered_dict && name != rebuild_tensor &&
                name != rebuild_parameter) {
                refuse_name(name);
            }
            return push({.kind = Kind::function, .text = name});
        }
        case 'R':  // REDUCE
            return call();
        case 'Q':  // BINPERSID
            return load_storage();
        case 'b':  // BUILD: attributes, such as a state dictionary's _metadata
            pop();
            require(top(), Kind::dict, "dictionary");
            return;
        case '.':  // STOP
            pickle_.root = pop();
            stopped_ = true;
            return;
        default: {
            std::array<char, 8> hex{};
            std::snprintf(hex.data(), hex.size(), "0x%02x", instruction);
            refuse("has the instruction " + std::string(hex.data()) +
                   ", which no state dictionary needs");
        }
    }
}

bool Machine::push_number(unsigned char instruction) {
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

bool Machine::push_container(unsigned char instruction) {
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

bool Machine::change_container(unsigned char instruction) {
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

bool Machine::use_memory(unsigned char instruction) {
    const auto get = [this](std::uint32_t place) {
        const auto found = memory_.find(place);
        if (found == memory_.end()) refuse("takes a value from memory that is not there");
        stack_.push_back(found->second);
        return true;
    };
    switch (instruction) {
        case 'q':  // BINPUT
            memory_[take_number<std::uint8_t>()] = top();
            return true;
        case 'r':  // LONG_BINPUT
            memory_[take_number<std::uint32_t>()] = top();
            return true;
        case 'h':  // BINGET
            return get(take_number<std::uint8_t>());
        case 'j':  // LONG_BINGET
            return get(take_number<std::uint32_t>());
        default:
            return false;
    }
}

void Machine::call() {
    const auto& arguments = require(pop(), Kind::tuple, "tuple").items;
    const std::string_view function = require(pop(), Kind::function, "function").text;
    if (function == ordered_dict && arguments.empty()) return push({.kind = Kind::dict});
    if (function == rebuild_tensor) return build_tensor(arguments);
    if (function == rebuild_parameter && !arguments.empty()) {
        require(arguments[0], Kind::tensor, "tensor");
        stack_.push_back(arguments[0]);
        return;
    }
    refuse_name(function);
}

// ("storage", torch.FloatStorage, key, device, elements)
void Machine::load_storage() {
    const auto& id = require(pop(), Kind::tuple, "tuple").items;
    if (id.size() != 5 || value(id[0]).text != "storage") refuse("names something not a storage");
    if (!require(id[1], Kind::function, "type").text.starts_with(torch_module)) {
        refuse_name(value(id[1]).text);
    }
    require(id[2], Kind::text, "key");
    if (require(id[4], Kind::integer, "size").integer < 0) refuse("has a negative size");
    push({.kind = Kind::storage, .items = std::vector(id)});
}

// (storage, offset, shape, strides, requires_grad, hooks[, metadata])
void Machine::build_tensor(const std::vector<PickleId>& arguments) {
    if (arguments.size() < 6 || arguments.size() > 7) refuse("has a tensor of another version");
    const auto& storage = require(arguments[0], Kind::storage, "storage").items;
    const std::int64_t offset = require(arguments[1], Kind::integer, "offset").integer;
    if (offset < 0) refuse("has a tensor at a negative offset");
    PickledTensor tensor{value(storage[1]).text.substr(torch_module.size()),
                         value(storage[2]).text,
                         static_cast<std::uint64_t>(value(storage[4]).integer),
                         static_cast<std::uint64_t>(offset),
                         integers(arguments[2]),
                         integers(arguments[3])};
    if (tensor.shape.size() != tensor.strides.size()) refuse("has a shape without its strides");
    push({.kind = Kind::tensor, .integer = static_cast<std::int64_t>(pickle_.tensors.size())});
    pickle_.tensors.push_back(std::move(tensor));
}

std::vector<std::int64_t> Machine::integers(PickleId tuple) const {
    std::vector<std::int64_t> numbers;
    const auto& items = require(tuple, Kind::tuple, "tuple").items;
    if (items.size() > 8) refuse("has a tensor of more than 8 dimensions");
    for (const PickleId item : items) {
        numbers.push_back(require(item, Kind::integer, "integer").integer);
        if (numbers.back() < 0) refuse("has a tensor with a negative size or stride");
    }
    return numbers;
}

}  // namespace

Pickle parse_pickle(std::span<const std::byte> text) { return Machine{text}.run(); }

}  // namespace ddp::checkpoint
