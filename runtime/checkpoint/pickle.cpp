// The few instructions and functions that a state dictionary needs beside the stack's own.
#include "checkpoint/pickle.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "checkpoint/pickle_stack.hpp"

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

}  // namespace

Pickle parse_pickle(std::span<const std::byte> text) { return Machine{text}.run(); }

}  // namespace ddp::checkpoint
