// StateDict: tensors by name, in order: what a net or an optimiser is made of, apart from its code.
// Moves between wrapped and bare nets, between C++ and Python (safetensors; the .pth files of
// torch.save and torch.load), and between dtypes. Source: torch.nn.Module.state_dict and
// load_state_dict.
#pragma once

#include <ddp/export.hpp>
#include <ddp/parameter.hpp>
#include <ddp/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddp {

// Something with named state besides parameters, such as an optimiser's momentum. The same names,
// shapes and dtypes at every call; the memory stays valid while it lives.
template <class T>
concept HasStateDict = requires(T object) {
    { object.state_dict() } -> std::convertible_to<std::vector<NamedTensor>>;
};

// Owns its tensors (copies of a StateDict share them).
class DDP_API StateDict {
public:
    // A tensor and its name.
    struct Entry {
        std::string name;
        Tensor tensor;
    };

    StateDict() = default;
    // Copies the elements, those of a GPU to the CPU. Throws UsageError for two of one name.
    explicit StateDict(const std::vector<NamedTensor>& tensors);

    void add(std::string name, Tensor tensor);         // throws UsageError: that name is there
    const Tensor* find(std::string_view name) const;   // null: no such name
    const Tensor& operator[](std::string_view) const;  // throws CheckpointError that names it
    auto begin() const noexcept { return entries_.begin(); }
    auto end() const noexcept { return entries_.end(); }
    std::size_t size() const noexcept { return entries_.size(); }  // tensors
    std::vector<NamedTensor> views() const;  // valid while a StateDict with these tensors lives

    // The same tensors under other names. strip_prefix: names that do not begin with it stay.
    // Throws UsageError when two become one.
    StateDict add_prefix(std::string_view prefix) const;
    StateDict strip_prefix(std::string_view prefix) const;
    // Those whose names begin with the prefix, without it: one part of a larger file.
    StateDict below(std::string_view prefix) const;

private:
    std::vector<Entry> entries_;
    std::unordered_map<std::string, std::size_t> index_by_name_;
};

// The tensors of a net (parameters, then buffers) or of an optimiser, borrowed. A wrapper adds
// nothing to the names.
template <class Object>
std::vector<NamedTensor> named_tensors(Object& object) {
    if constexpr (requires { object.module(); }) {
        return named_tensors(object.module());
    } else if constexpr (requires { object.parameters(); }) {
        std::vector<NamedTensor> tensors;
        for (Parameter& parameter : std::span<Parameter>(object.parameters())) {
            tensors.push_back({parameter.name, parameter.value});
        }
        if constexpr (requires { object.buffers(); }) {
            for (const NamedTensor& buffer : object.buffers()) tensors.push_back(buffer);
        }
        return tensors;
    } else {
        return object.state_dict();
    }
}

// What may differ.
struct LoadOptions {
    bool strict = true;          // false: names that only one side has are returned, not thrown
    bool convert_dtype = false;  // true: elements may change their type, but not lose a fraction
    std::string strip_prefix{};  // of the state's names, before they are compared: "module."
    std::string add_prefix{};    // put before them, after that
};

// With LoadOptions::strict both are empty.
struct LoadResult {
    std::vector<std::string> missing_keys;     // the net has them, the state has not
    std::vector<std::string> unexpected_keys;  // the reverse
};

// Copies `state` into `tensors`, wherever they are, all of it or nothing: names, shapes and dtypes
// are checked first.
// Throws CheckpointError that lists everything that does not fit, with the prefix that would help.
DDP_API LoadResult load_state_dict(const std::vector<NamedTensor>& tensors, const StateDict& state,
                                   const LoadOptions& options = {});
template <class Object>
requires(!std::same_as<Object, std::vector<NamedTensor>>) LoadResult
    load_state_dict(Object& object, const StateDict& state, const LoadOptions& options = {}) {
    return load_state_dict(named_tensors(object), state, options);
}

// A safetensors file or a .pth file that torch.save wrote, told apart by its first bytes. In a .pth
// file dictionaries and lists inside each other become names with dots, and numbers become tensors
// of one element; texts and None are left out. Nothing in the file is executed: what is not data of
// a state dictionary is refused by name. Links are followed, and the file may be anybody's. Throws
// CheckpointError.
DDP_API StateDict read_state_dict(const std::filesystem::path& file);

// A safetensors file, which Python reads too. Durable and whole when it returns; an existing file
// is replaced. Throws CheckpointError, also where this host has lost contact with its job, which
// may go on elsewhere.
DDP_API void write_state_dict(const std::filesystem::path& file, const StateDict& state);

// The same as a .pth file: an OrderedDict for Python's torch.load, also with weights_only=True.
// Tensors of one dtype and length in the same memory are written once and share it again when they
// are read, as those that torch.save writes. Throws CheckpointError, also for a name that is not
// UTF-8.
DDP_API void write_torch_state_dict(const std::filesystem::path& file, const StateDict& state);

}  // namespace ddp
