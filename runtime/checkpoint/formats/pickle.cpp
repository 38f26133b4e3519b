// The few instructions and functions that a state dictionary needs beside the stack's own, and a
// writer that uses as few of them as it can.
#include "checkpoint/formats/pickle.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "checkpoint/formats/pickle_stack.hpp"

namespace ddp::checkpoint {

namespace {

constexpr std::string_view ordered_dict = "collections\nOrderedDict";
constexpr std::string_view rebuild_tensor = "torch._utils\n_rebuild_tensor_v2";
constexpr std::string_view rebuild_parameter = "torch._utils\n_rebuild_parameter";
constexpr std::string_view torch_module = "torch\n";
constexpr std::string_view storage_suffix = "Storage";

class Machine : private PickleStack {
public:
    explicit Machine(std::span<const std::byte> text) : PickleStack(text) {}

    Pickle run() {
        while (!stopped_) step(static_cast<unsigned char>(take(1)[0]));
        return std::move(pickle_);
    }

private:
    [[noreturn]] static void refuse_name(std::string_view function);
    void step(unsigned char instruction);
    void call();
    void build_tensor(const std::vector<PickleId>& arguments);
    void load_storage();
    std::vector<std::int64_t> integers(PickleId tuple) const;

    bool stopped_ = false;
};

void Machine::refuse_name(std::string_view function) {
    std::string name(function);
    std::ranges::replace(name, '\n', '.');
    refuse("uses " + name + ", which is no part of a state dictionary; in Python save " +
           "model.state_dict(), not the model");
}

void Machine::step(unsigned char instruction) {
    if (PickleStack::step(instruction)) return;
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
            const std::string_view name = take_two_lines();
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

void Machine::call() {
    const auto& arguments = require(pop(), Kind::tuple, "tuple").items;
    const std::string_view function = require(pop(), Kind::function, "function").text;
    if (function == ordered_dict && arguments.empty()) return push({.kind = Kind::dict});
    if (function == rebuild_tensor) return build_tensor(arguments);
    if (function == rebuild_parameter && !arguments.empty()) {
        require(arguments[0], Kind::tensor, "tensor");
        push_again(arguments[0]);
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

// As Python decodes it: without overlong forms, surrogates and what lies above U+10FFFF.
bool is_utf8(std::string_view text) {
    constexpr std::array<std::uint32_t, 4> smallest{0, 0x80, 0x800, 0x10000};
    for (std::size_t i = 0; i < text.size();) {
        const auto first = static_cast<unsigned char>(text[i++]);
        const auto ones = static_cast<std::size_t>(std::countl_one(first));
        if (ones == 0) continue;
        if (ones == 1 || ones > 4 || text.size() - i < ones - 1) return false;
        std::uint32_t code = first & (0x7fU >> ones);
        for (const std::size_t end = i + ones - 1; i < end; ++i) {
            const auto byte = static_cast<unsigned char>(text[i]);
            if ((byte & 0xc0U) != 0x80) return false;
            code = code << 6 | (byte & 0x3fU);
        }
        const bool surrogate = code >= 0xd800 && code <= 0xdfff;
        if (code < smallest[ones - 1] || surrogate || code > 0x10ffff) return false;
    }
    return true;
}

class Writer {
public:
    std::string run(const std::vector<std::pair<std::string_view, PickledTensor>>& tensors) {
        put("\x80\x02");  // PROTO
        ordered_dictionary();
        if (!tensors.empty()) {
            put("(");  // MARK
            for (const auto& [name, tensor] : tensors) {
                put_text(name);
                put_tensor(tensor);
            }
            put("u");  // SETITEMS
        }
        put(".");  // STOP
        return std::move(text_);
    }

private:
    void put(std::string_view bytes) { text_ += bytes; }
    template <class T>
    void put_number(char instruction, T number) {
        text_ += instruction;
        text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    void put_integer(std::uint64_t number);
    void put_text(std::string_view text);
    // Written once; afterwards taken from the memo.
    template <class Write>
    void put_again(const std::string& name, const Write& write);
    void put_function(const std::string& module_and_name);
    void put_shared_text(const std::string& text) {
        put_again(text, [&] { put_text(text); });
    }
    void ordered_dictionary() {
        put_function(std::string(ordered_dict));
        put(")R");  // EMPTY_TUPLE, REDUCE
    }
    void put_tuple(const std::vector<std::int64_t>& integers);
    void put_tensor(const PickledTensor& tensor);

    std::string text_;
    std::map<std::string, std::uint8_t> memo_index_;
};

void Writer::put_integer(std::uint64_t number) {
    if (number <= std::numeric_limits<std::uint8_t>::max()) {
        put_number('K', static_cast<std::uint8_t>(number));  // BININT1
    } else if (number <= std::numeric_limits<std::uint16_t>::max()) {
        put_number('M', static_cast<std::uint16_t>(number));  // BININT2
    } else if (number <= std::numeric_limits<std::int32_t>::max()) {
        put_number('J', static_cast<std::int32_t>(number));  // BININT
    } else {
        put_number('\x8a', static_cast<std::uint8_t>(sizeof number));  // LONG1
        text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
}

void Writer::put_text(std::string_view text) {
    put_number('X', static_cast<std::uint32_t>(text.size()));  // BINUNICODE
    put(text);
}

template <class Write>
void Writer::put_again(const std::string& name, const Write& write) {
    const auto [found, is_new] =
        memo_index_.emplace(name, static_cast<std::uint8_t>(memo_index_.size()));
    if (is_new) write();
    put_number(is_new ? 'q' : 'h', found->second);  // BINPUT, BINGET
}

void Writer::put_function(const std::string& module_and_name) {
    put_again(module_and_name, [&] { put("c" + module_and_name + "\n"); });  // GLOBAL
}

void Writer::put_tuple(const std::vector<std::int64_t>& integers) {
    constexpr std::array short_tuples{")", "\x85", "\x86", "\x87"};  // EMPTY_TUPLE, TUPLE1 to 3
    const bool is_short = integers.size() < short_tuples.size();
    if (!is_short) put("(");
    for (const std::int64_t integer : integers) put_integer(static_cast<std::uint64_t>(integer));
    put(is_short ? short_tuples[integers.size()] : "t");
}

// _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)
void Writer::put_tensor(const PickledTensor& tensor) {
    put_function(std::string(rebuild_tensor));
    put("((");
    put_shared_text("storage");
    put_function(std::string(torch_module) + std::string(tensor.dtype));
    put_text(tensor.key);
    put_shared_text("cpu");
    put_integer(tensor.storage_elements);
    put("tQ");  // TUPLE, BINPERSID
    put_integer(tensor.offset);
    put_tuple(tensor.shape);
    put_tuple(tensor.strides);
    put("\x89");  // NEWFALSE
    ordered_dictionary();
    put("tR");  // TUPLE, REDUCE
}

}  // namespace

Pickle parse_pickle(std::span<const std::byte> text) { return Machine{text}.run(); }

std::string write_pickle(const std::vector<std::pair<std::string_view, PickledTensor>>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::string_view name = tensors[i].first;
        if (name.size() <= std::numeric_limits<std::uint32_t>::max() && is_utf8(name)) continue;
        throw CheckpointError("the name of tensor " + std::to_string(i) + " of " +
                              std::to_string(tensors.size()) +
                              " is not UTF-8, which Python's texts are; rename it");
    }
    return Writer{}.run(tensors);
}

}  // namespace ddp::checkpoint
