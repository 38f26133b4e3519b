// Names compared, shapes and dtypes checked, and only then elements copied.
#include <ddp/state_dict.hpp>

#include <ddp/error.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "checkpoint/staging.hpp"
#include "tensor/convert_elements.hpp"

namespace ddp {

namespace {

Tensor on_cpu(const TensorView& view) {
    std::shared_ptr<std::byte[]> memory{new std::byte[view.bytes()]};
    return {TensorView{memory.get(), view.shape, view.dtype},
            std::shared_ptr<void>(memory, memory.get())};
}

Tensor copy_of(const TensorView& source, checkpoint::Staging& staging) {
    Tensor copy = on_cpu(source);
    staging.read(source, static_cast<std::byte*>(copy.data()));
    return copy;
}

// Any device and dtype to any other.
void copy_elements(const TensorView& from, const TensorView& to, checkpoint::Staging& staging) {
    if (from.device.type != DeviceType::cpu) {
        return copy_elements(copy_of(from, staging), to, staging);
    }
    if (from.dtype == to.dtype) {
        return staging.write(to, static_cast<const std::byte*>(from.data));
    }
    if (to.device.type == DeviceType::cpu) return device::convert_elements(from, to);
    const Tensor converted{on_cpu(to)};
    device::convert_elements(from, converted);
    staging.write(to, static_cast<const std::byte*>(converted.data()));
}

// "a", "b"
std::string quoted(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
    return text;
}

// What stands before each of `shorter` in one of `longer`; nothing when there is no such text.
std::optional<std::string> common_prefix(const std::vector<std::string>& shorter,
                                         const std::vector<std::string>& longer) {
    if (shorter.empty()) return std::nullopt;
    const std::unordered_set<std::string_view> names(longer.begin(), longer.end());
    for (const std::string& name : longer) {
        if (name.size() <= shorter[0].size() || !name.ends_with(shorter[0])) continue;
        const std::string prefix = name.substr(0, name.size() - shorter[0].size());
        if (std::ranges::all_of(
                shorter, [&](const std::string& one) { return names.contains(prefix + one); })) {
            return prefix;
        }
    }
    return std::nullopt;
}

std::string describe_names(const LoadResult& names) {
    std::string text;
    if (!names.missing_keys.empty()) {
        text += " Missing key(s) in state_dict: " + quoted(names.missing_keys) + ".";
    }
    if (!names.unexpected_keys.empty()) {
        text += " Unexpected key(s) in state_dict: " + quoted(names.unexpected_keys) + ".";
    }
    if (const auto prefix = common_prefix(names.missing_keys, names.unexpected_keys)) {
        text += " The state's names begin with \"" + *prefix +
                "\": load_state_dict(..., {.strip_prefix = \"" + *prefix + "\"}).";
    } else if (const auto lacking = common_prefix(names.unexpected_keys, names.missing_keys)) {
        text += " The state's names lack \"" + *lacking +
                "\": load_state_dict(..., {.add_prefix = \"" + *lacking + "\"}).";
    }
    return text;
}

// Why the elements of `from` cannot become those of `to`; empty when they can.
std::string misfit(const std::string& name, const TensorView& from, const TensorView& to,
                   const LoadOptions& options) {
    if (from.shape != to.shape) {
        return " Size mismatch for \"" + name + "\": " + to_string(from.shape) + " in the state, " +
               to_string(to.shape) + " here.";
    }
    if (from.dtype == to.dtype) return {};
    const bool loses = is_floating_point(from.dtype) && !is_floating_point(to.dtype);
    if (options.convert_dtype && !loses) return {};
    return " Type mismatch for \"" + name + "\": " + to_string(from.dtype) + " in the state, " +
           to_string(to.dtype) + " here" + (loses ? "." : "; {.convert_dtype = true} converts.");
}

}  // namespace

StateDict::StateDict(const std::vector<NamedTensor>& tensors) {
    checkpoint::Staging staging;
    for (const auto& [name, tensor] : tensors) add(name, copy_of(tensor, staging));
}

void StateDict::add(std::string name, Tensor tensor) {
    if (!index_by_name_.emplace(name, entries_.size()).second) {
        throw UsageError("state dict: there are two tensors named \"" + name + "\"");
    }
    entries_.push_back({std::move(name), std::move(tensor)});
}

const Tensor* StateDict::find(std::string_view name) const {
    const auto found = index_by_name_.find(std::string(name));
    return found == index_by_name_.end() ? nullptr : &entries_[found->second].tensor;
}

const Tensor& StateDict::operator[](std::string_view name) const {
    if (const Tensor* tensor = find(name)) return *tensor;
    throw CheckpointError("state dict: it has no tensor \"" + std::string(name) + "\"");
}

std::vector<NamedTensor> StateDict::views() const {
    std::vector<NamedTensor> views;
    for (const Entry& entry : entries_) views.push_back({entry.name, entry.tensor.view()});
    return views;
}

StateDict StateDict::add_prefix(std::string_view prefix) const {
    StateDict renamed;
    for (const Entry& entry : entries_) renamed.add(std::string(prefix) + entry.name, entry.tensor);
    return renamed;
}

StateDict StateDict::strip_prefix(std::string_view prefix) const {
    StateDict renamed;
    for (const Entry& entry : entries_) {
        const bool has_it = entry.name.starts_with(prefix);
        renamed.add(has_it ? entry.name.substr(prefix.size()) : entry.name, entry.tensor);
    }
    return renamed;
}

StateDict StateDict::below(std::string_view prefix) const {
    StateDict part;
    for (const Entry& entry : entries_) {
        if (entry.name.starts_with(prefix))
            part.add(entry.name.substr(prefix.size()), entry.tensor);
    }
    return part;
}

LoadResult load_state_dict(const std::vector<NamedTensor>& tensors, const StateDict& state,
                           const LoadOptions& options) {
    const StateDict renamed =
        state.strip_prefix(options.strip_prefix).add_prefix(options.add_prefix);
    LoadResult names;
    std::string problems;
    std::vector<std::pair<TensorView, TensorView>> pairs;
    std::unordered_set<std::string_view> wanted;
    for (const auto& [name, tensor] : tensors) {
        wanted.insert(name);
        const Tensor* found = renamed.find(name);
        if (found == nullptr) {
            names.missing_keys.push_back(name);
            continue;
        }
        problems += misfit(name, *found, tensor, options);
        pairs.emplace_back(*found, tensor);
    }
    for (const auto& [name, tensor] : renamed) {
        if (!wanted.contains(name)) names.unexpected_keys.push_back(name);
    }
    if (options.strict) problems = describe_names(names) + problems;
    if (!problems.empty()) {
        throw CheckpointError("state dict: it does not fit; nothing was changed." + problems);
    }
    checkpoint::Staging staging;
    for (const auto& [from, to] : pairs) copy_elements(from, to, staging);
    return names;
}

}  // namespace ddp
