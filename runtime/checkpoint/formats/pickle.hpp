// The part of Python's pickle language in which torch.save writes a state dictionary, read and
// written. It is read as data: the names of classes and functions are compared with a short list,
// nothing is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::checkpoint {

using PickleId = std::uint32_t;  // of a value in Pickle::values

// A part of a storage, seen as a tensor: torch._utils._rebuild_tensor_v2's arguments.
struct PickledTensor {
    std::string_view dtype;  // "FloatStorage"
    std::string_view key;    // of the storage
    std::uint64_t storage_elements;
    std::uint64_t offset;  // in elements, as the strides
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
};

struct PickleValue {
    enum class Kind : std::uint8_t {
        none,
        boolean,
        integer,
        real,
        text,
        tuple,
        list,
        dict,  // items: key, value, key, value, ...
        function,
        storage,  // items: its persistent id
        tensor,   // integer: its index in Pickle::tensors
    };
    Kind kind = Kind::none;
    std::int64_t integer = 0;
    double real = 0;
    std::string_view text{};  // of a function: module, newline, name
    std::vector<PickleId> items{};
};

// Views of the text that was parsed. No more values than bytes; values may contain themselves.
struct Pickle {
    std::vector<PickleValue> values;
    std::vector<PickledTensor> tensors;
    PickleId root = 0;
};

// Protocol 2. Throws CheckpointError, without the path, for everything else, with its name.
Pickle parse_pickle(std::span<const std::byte> text);

// An OrderedDict of these tensors by name, as format.md says. Throws CheckpointError, without the
// path, for a name that no pickle can hold.
std::string write_pickle(const std::vector<std::pair<std::string_view, PickledTensor>>& tensors);

}  // namespace ddp::checkpoint
