// The archive's members: NAME/data.pkl, NAME/data/KEY for each storage, NAME/byteorder.
#include "checkpoint/formats/torch_file.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/formats/pickle.hpp"
#include "checkpoint/formats/zip.hpp"
#include "checkpoint/staging.hpp"

namespace ddp::checkpoint {

namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view zip_begin{"PK\x03\x04", 4};
// Protocol 2, then the number that torch before 1.6 began its files with.
constexpr std::string_view old_begin{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
                                     14};
constexpr std::string_view pickle_member = "/data.pkl";
constexpr int deepest = 16;  // dictionaries and lists inside each other

struct StorageType {
    std::string_view name;
    DType dtype;
};
constexpr std::array storage_types{
    StorageType{"FloatStorage", DType::float32}, StorageType{"DoubleStorage", DType::float64},
    StorageType{"HalfStorage", DType::float16},  StorageType{"BFloat16Storage", DType::bfloat16},
    StorageType{"LongStorage", DType::int64},    StorageType{"IntStorage", DType::int32},
    StorageType{"ShortStorage", DType::int16},   StorageType{"CharStorage", DType::int8},
    StorageType{"ByteStorage", DType::uint8},    StorageType{"BoolStorage", DType::boolean},
};

static_assert(std::endian::native == std::endian::little, "the file says that it is");

[[noreturn]] void refuse_torch_file(const std::string& what) { throw CheckpointError(what); }

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The archive, and its members by the name below the archive's own.
class Archive {
public:
    explicit Archive(std::span<const std::byte> file) {
        const auto entries = read_zip(file);
        for (const ZipEntry& entry : entries) {
            const std::size_t slash = entry.name.find('/');
            if (slash == std::string_view::npos) continue;
            if (entry.name.substr(slash) == pickle_member) root_ = entry.name.substr(0, slash + 1);
        }
        if (root_.empty())
            refuse_torch_file("it is a zip archive without a data.pkl: torch.save wrote none");
        for (const ZipEntry& entry : entries) {
            if (!entry.name.starts_with(root_)) continue;
            members_[entry.name.substr(root_.size())] = entry.bytes;
        }
        if (members_.contains("constants.pkl")) {
            refuse_torch_file(
                "it is a TorchScript program (torch.jit.save), not a state dictionary");
        }
        for (const ZipEntry& entry : entries) {
            if (entry.stored) continue;
            refuse_torch_file("it has a compressed or encrypted member, \"" +
                              std::string(entry.name) + "\": torch.save wrote none");
        }
        const auto order = find("byteorder");
        if (order && text_of(*order) != "little") refuse_torch_file("its numbers are big-endian");
    }
    std::optional<std::span<const std::byte>> find(std::string_view name) const {
        const auto found = members_.find(name);
        return found == members_.end() ? std::nullopt : std::optional(found->second);
    }

private:
    std::string_view root_;
    std::map<std::string_view, std::span<const std::byte>> members_;
};

enum class Layout { empty, contiguous, strided, outside };

// How a tensor lies in its storage of so many elements; every sum is kept below the overflow.
Layout layout_of(const PickledTensor& tensor, std::uint64_t elements) {
    if (std::ranges::count(tensor.shape, 0) > 0) return Layout::empty;
    if (tensor.offset >= elements) return Layout::outside;
    std::uint64_t last = tensor.offset;
    std::uint64_t expected_stride = 1;
    bool contiguous = true;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
        const auto extent = static_cast<std::uint64_t>(tensor.shape[i]);
        const auto stride = static_cast<std::uint64_t>(tensor.strides[i]);
        std::uint64_t reach = 0;
        if (__builtin_mul_overflow(extent - 1, stride, &reach) || reach >= elements ||
            __builtin_mul_overflow(expected_stride, extent, &expected_stride)) {
            return Layout::outside;
        }
        last += reach;
        contiguous &= extent == 1 || stride * extent == expected_stride;
    }
    if (last >= elements) return Layout::outside;
    return contiguous ? Layout::contiguous : Layout::strided;
}

class Reader {
public:
    Reader(std::shared_ptr<std::byte[]> memory, std::size_t size)
        : memory_(std::move(memory)), archive_({memory_.get(), size}), left_to_copy_(size) {
        const auto text = archive_.find(pickle_member.substr(1));
        pickle_ = parse_pickle(*text);
        left_to_name_ = 4096 + 64 * text->size();
    }

    StateDict read() {
        if (pickle_.values[pickle_.root].kind != Kind::dict) {
            refuse_torch_file("torch.save wrote something else than a dictionary into it");
        }
        add(pickle_.root, "", 0);
        return std::move(state_);
    }

private:
    void add(PickleId id, const std::string& name, int depth);
    void add_entry(std::string name, Tensor tensor);
    std::string name_of_key(PickleId id) const;
    Tensor make(const PickledTensor& pickled);
    Tensor copy_strided(const PickledTensor& pickled, const TensorView& view);
    std::shared_ptr<std::byte[]> allocate(std::uint64_t bytes);
    template <class T>
    Tensor number(T value, DType dtype) {
        auto memory = std::make_shared<T>(value);
        return {TensorView{memory.get(), Shape{}, dtype}, memory};
    }

    std::shared_ptr<std::byte[]> memory_;
    Archive archive_;
    Pickle pickle_;
    StateDict state_;
    std::uint64_t left_to_copy_;  // bytes
    std::uint64_t left_to_name_ = 0;
};

std::string Reader::name_of_key(PickleId id) const {
    const PickleValue& key = pickle_.values[id];
    if (key.kind == Kind::text) return std::string(key.text);
    if (key.kind == Kind::integer) return std::to_string(key.integer);
    refuse_torch_file("a dictionary in it has a key that is neither a text nor an integer");
}

void Reader::add_entry(std::string name, Tensor tensor) {
    if (state_.find(name) != nullptr) refuse_torch_file("it has two values named \"" + name + "\"");
    state_.add(std::move(name), std::move(tensor));
}

void Reader::add(PickleId id, const std::string& name, int depth) {
    if (depth > deepest)
        refuse_torch_file("its dictionaries are nested too deeply at \"" + name + "\"");
    // Values may be used in many places: their names must not take more than they are worth.
    if (name.size() + 1 > left_to_name_)
        refuse_torch_file("its names are longer than a state's can be");
    left_to_name_ -= name.size() + 1;
    const PickleValue& value = pickle_.values[id];
    const std::string prefix = depth == 0 ? "" : name + ".";
    switch (value.kind) {
        case Kind::none:
        case Kind::text:
            return;
        case Kind::boolean:
            return add_entry(name, number(value.integer != 0, DType::boolean));
        case Kind::integer:
            return add_entry(name, number(value.integer, DType::int64));
        case Kind::real:
            return add_entry(name, number(value.real, DType::float64));
        case Kind::tensor:
            return add_entry(name, make(pickle_.tensors[static_cast<std::size_t>(value.integer)]));
        case Kind::tuple:
        case Kind::list:
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                add(value.items[i], prefix + std::to_string(i), depth + 1);
            }
            return;
        case Kind::dict:
            for (std::size_t i = 0; i < value.items.size(); i += 2) {
                add(value.items[i + 1], prefix + name_of_key(value.items[i]), depth + 1);
            }
            return;
        case Kind::function:
        case Kind::storage:
            refuse_torch_file("\"" + name + "\" is neither a tensor nor a number");
    }
}

std::shared_ptr<std::byte[]> Reader::allocate(std::uint64_t bytes) {
    if (bytes > left_to_copy_) refuse_torch_file("its tensors repeat more than the file holds");
    left_to_copy_ -= bytes;
    return std::shared_ptr<std::byte[]>{new std::byte[bytes]};
}

Tensor Reader::make(const PickledTensor& pickled) {
    const auto* type = std::ranges::find(storage_types, pickled.dtype, &StorageType::name);
    if (type == storage_types.end()) {
        refuse_torch_file("it has a torch." + std::string(pickled.dtype) +
                          ", whose elements ddp has not");
    }
    const std::size_t width = size_of(type->dtype);
    const auto storage = archive_.find("data/" + std::string(pickled.key));
    const std::string which = "its storage \"" + std::string(pickled.key) + "\"";
    if (!storage) refuse_torch_file(which + " is missing");
    const std::uint64_t elements = storage->size() / width;
    if (elements != pickled.storage_elements || storage->size() % width != 0) {
        refuse_torch_file(which + " has " + std::to_string(storage->size()) + " bytes, not " +
                          std::to_string(pickled.storage_elements) + " elements");
    }
    const Shape shape{std::span<const std::int64_t>(pickled.shape)};
    const Layout layout = layout_of(pickled, elements);
    if (layout == Layout::outside) refuse_torch_file("a tensor lies outside of " + which);
    const std::byte* first = storage->data();
    if (layout != Layout::empty) first += pickled.offset * width;
    const TensorView view{const_cast<std::byte*>(first), shape, type->dtype};
    const bool aligned = reinterpret_cast<std::uintptr_t>(first) % width == 0;
    const bool as_it_is = layout == Layout::empty || (layout == Layout::contiguous && aligned);
    return as_it_is ? Tensor{view, memory_} : copy_strided(pickled, view);
}

Tensor Reader::copy_strided(const PickledTensor& pickled, const TensorView& view) {
    const std::size_t width = size_of(view.dtype);
    const std::size_t count = view.numel();
    if (count > left_to_copy_ / width)
        refuse_torch_file("its tensors repeat more than the file holds");
    const auto memory = allocate(count * width);
    const auto* source = static_cast<const std::byte*>(view.data);
    std::vector<std::int64_t> at(pickled.shape.size(), 0);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t offset = 0;
        for (std::size_t d = 0; d < at.size(); ++d) {
            offset += static_cast<std::uint64_t>(at[d] * pickled.strides[d]);
        }
        std::memcpy(memory.get() + i * width, source + offset * width, width);
        for (std::size_t d = at.size(); d-- > 0 && ++at[d] == pickled.shape[d];) at[d] = 0;
    }
    return {TensorView{memory.get(), view.shape, view.dtype},
            std::shared_ptr<void>(memory, memory.get())};
}

}  // namespace

bool is_torch_file(std::span<const std::byte> file) {
    return text_of(file).starts_with(zip_begin) || text_of(file).starts_with(old_begin);
}

StateDict read_torch_file(const std::shared_ptr<std::byte[]>& memory, std::size_t size) {
    if (text_of({memory.get(), size}).starts_with(old_begin)) {
        refuse_torch_file(
            "it is in the format of torch before 1.6; in Python: torch.save(torch.load(FILE), "
            "FILE)");
    }
    return Reader{memory, size}.read();
}

namespace {

std::vector<std::int64_t> strides_of(const Shape& shape) {
    const auto extents = shape.extents();
    std::vector<std::int64_t> strides(extents.size(), 1);
    for (std::size_t i = extents.size(); i-- > 1;) {
        const std::int64_t extent = std::max<std::int64_t>(extents[i], 1);
        // Only a tensor without elements has room for an overflow; any strides do for it.
        if (__builtin_mul_overflow(strides[i], extent, &strides[i - 1])) strides[i - 1] = 1;
    }
    return strides;
}

// The tensors of a file to be: which storages there are, and which tensor is in which.
class Plan {
public:
    explicit Plan(const std::vector<NamedTensor>& tensors) {
        // Their keys are looked at from the pickle.
        for (std::size_t i = 0; i < tensors.size(); ++i) keys_.push_back(std::to_string(i));
        for (const auto& [name, tensor] : tensors) add(name, tensor);
    }
    std::string pickle(const std::string& path) const {
        try {
            return write_pickle(pickled_);
        } catch (const CheckpointError& error) {
            throw CheckpointError("checkpoint: cannot write " + path + ": " + error.what());
        }
    }
    const std::vector<TensorView>& storages() const { return storages_; }
    const std::string& key(std::size_t storage) const { return keys_[storage]; }

private:
    using Memory = std::tuple<DeviceType, int, const void*, std::size_t, DType>;

    void add(std::string_view name, const TensorView& tensor);
    std::size_t storage_of(const TensorView& tensor);

    std::vector<std::string> keys_;
    std::vector<std::pair<std::string_view, PickledTensor>> pickled_;
    std::vector<TensorView> storages_;
    std::map<Memory, std::size_t> storage_index_;  // in storages_
};

std::size_t Plan::storage_of(const TensorView& tensor) {
    const Memory memory{tensor.device.type, tensor.device.index, tensor.data, tensor.bytes(),
                        tensor.dtype};
    const bool has_any = tensor.bytes() > 0;
    if (const auto found = storage_index_.find(memory); has_any && found != storage_index_.end()) {
        return found->second;
    }
    if (has_any) storage_index_.emplace(memory, storages_.size());
    storages_.push_back(tensor);
    return storages_.size() - 1;
}

void Plan::add(std::string_view name, const TensorView& tensor) {
    const auto extents = tensor.shape.extents();
    pickled_.emplace_back(
        name,
        PickledTensor{std::ranges::find(storage_types, tensor.dtype, &StorageType::dtype)->name,
                      keys_[storage_of(tensor)],
                      tensor.numel(),
                      0,
                      {extents.begin(), extents.end()},
                      strides_of(tensor.shape)});
}

}  // namespace

void write_torch_file(Files& files, const std::string& path,
                      const std::vector<NamedTensor>& tensors, Existing existing) {
    const Plan plan{tensors};
    const std::string pickle = plan.pickle(path);
    FileWriter writer{files, path, existing};
    ZipWriter archive{[&](std::span<const std::byte> bytes) { writer.write(bytes); }};
    const std::string root = "archive/";
    archive.add(root + "data.pkl", pickle);
    archive.add(root + "byteorder", "little");
    Staging staging;
    for (std::size_t i = 0; i < plan.storages().size(); ++i) {
        const TensorView& storage = plan.storages()[i];
        archive.add(root + "data/" + plan.key(i), storage.bytes(),
                    [&](const ZipWriter::Sink& sink) { staging.read(storage, sink); });
    }
    archive.add(root + "version", "3\n");
    archive.finish();
    writer.commit();
}

}  // namespace ddp::checkpoint
