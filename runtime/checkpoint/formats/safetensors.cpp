// The only user of JSON in this room. Nothing in a file is believed: each field is checked for its
// type, and sizes are multiplied with a check for overflow.
#include "checkpoint/formats/safetensors.hpp"

#include <ddp/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace ddp::checkpoint {

namespace {

using Json = nlohmann::json;

constexpr const char* metadata_key = "__metadata__";
constexpr int max_json_depth = 3;  // {"name": {"shape": [1, 2]}}

struct DTypeName {
    DType dtype;
    const char* name;
};
constexpr std::array dtype_names{
    DTypeName{DType::float32, "F32"},   DTypeName{DType::float64, "F64"},
    DTypeName{DType::int32, "I32"},     DTypeName{DType::int64, "I64"},
    DTypeName{DType::uint8, "U8"},      DTypeName{DType::float16, "F16"},
    DTypeName{DType::bfloat16, "BF16"}, DTypeName{DType::int8, "I8"},
    DTypeName{DType::int16, "I16"},     DTypeName{DType::boolean, "BOOL"},
};

[[noreturn]] void refuse(const std::string& what) { throw CheckpointError(what); }
[[noreturn]] void refuse(const std::string& tensor, const std::string& what) {
    refuse("tensor \"" + tensor + "\" " + what);
}

const char* name_of(DType dtype) {
    return std::ranges::find(dtype_names, dtype, &DTypeName::dtype)->name;
}

// Refuses names that come twice, of which JSON libraries silently keep one, and deep nesting.
Json parse(std::string_view text) {
    std::vector<std::set<std::string>> keys;  // of the objects around the parser's position
    const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
        if (depth > max_json_depth) refuse("the header is nested too deeply");
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key) {
            const auto key = parsed.get<std::string>();
            if (!keys.back().insert(key).second) refuse("the header has \"" + key + "\" twice");
        }
        return true;
    };
    if (!text.starts_with('{')) refuse("the header is not a JSON object");
    try {
        return Json::parse(text, check);
    } catch (const Json::exception& error) {
        refuse(std::string("the header is not valid JSON: ") + error.what());
    }
}

std::map<std::string, std::string> decode_metadata(const Json& object) {
    if (!object.is_object()) refuse("__metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : object.items()) {
        if (!value.is_string()) refuse("__metadata__ has \"" + key + "\" that is not a string");
        metadata.emplace(key, value.get<std::string>());
    }
    return metadata;
}

DType decode_dtype(const std::string& tensor, const Json& value) {
    if (value.is_string()) {
        for (const auto& [dtype, name] : dtype_names) {
            if (value.get_ref<const std::string&>() == name) return dtype;
        }
    }
    refuse(tensor, "has an unknown dtype: " + value.dump());
}

Shape decode_shape(const std::string& tensor, const Json& value) {
    std::vector<std::int64_t> extents;
    if (!value.is_array() || value.size() > Shape::max_dims) {
        refuse(tensor, "has no shape of up to 8 dimensions");
    }
    for (const Json& extent : value) {
        if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX) {
            refuse(tensor, "has a bad extent: " + extent.dump());
        }
        extents.push_back(extent.get<std::int64_t>());
    }
    return Shape{std::span<const std::int64_t>(extents)};
}

// Nothing when the product does not fit.
std::optional<std::uint64_t> bytes_of(const Shape& shape, DType dtype) {
    std::uint64_t bytes = size_of(dtype);
    bool too_large = false;
    for (const std::int64_t extent : shape.extents()) {
        if (extent == 0) return 0;
        too_large |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
    }
    return too_large ? std::nullopt : std::optional(bytes);
}

TensorEntry decode_tensor(const std::string& name, const Json& object) {
    if (!object.is_object() || object.size() != 3 || !object.contains("dtype") ||
        !object.contains("shape") || !object.contains("data_offsets")) {
        refuse(name, "does not have exactly dtype, shape and data_offsets");
    }
    TensorEntry entry{name, decode_dtype(name, object["dtype"]),
                      decode_shape(name, object["shape"]), 0, 0};
    const Json& offsets = object["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
        refuse(name, "has bad data_offsets: " + offsets.dump());
    }
    entry.begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    const auto expected = bytes_of(entry.shape, entry.dtype);
    if (end < entry.begin || !expected || end - entry.begin != *expected) {
        refuse(name, "has data_offsets " + offsets.dump() + " that do not fit its shape " +
                         to_string(entry.shape) + " of " + to_string(entry.dtype));
    }
    entry.bytes = *expected;
    return entry;
}

void check_offsets(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
    std::uint64_t end = 0;
    for (const TensorEntry& entry : tensors) {
        if (entry.begin != end) refuse(entry.name, "overlaps another or leaves a hole before it");
        end += entry.bytes;  // no overflow: the entry's own end fitted
    }
    if (end != data_bytes) {
        refuse("the tensors take " + std::to_string(end) + " bytes, but the file holds " +
               std::to_string(data_bytes));
    }
}

}  // namespace

Header plan_header(const std::vector<NamedTensor>& tensors,
                   std::map<std::string, std::string> metadata) {
    Header header{std::move(metadata), {}};
    std::set<std::string> names{metadata_key};
    for (const auto& [name, tensor] : tensors) {
        if (!names.insert(name).second) refuse(name, "is there twice");
        header.tensors.push_back({name, tensor.dtype, tensor.shape, 0, tensor.bytes()});
    }
    std::ranges::stable_sort(header.tensors, std::ranges::greater{},
                             [](const TensorEntry& entry) { return size_of(entry.dtype); });
    std::uint64_t end = 0;
    for (TensorEntry& entry : header.tensors) {
        entry.begin = std::exchange(end, end + entry.bytes);
    }
    return header;
}

std::string encode(const Header& header) {
    Json json = Json::object();
    json[metadata_key] = header.metadata;
    for (const TensorEntry& entry : header.tensors) {
        Json& object = json[entry.name];
        object["dtype"] = name_of(entry.dtype);
        object["shape"] = Json::array();
        for (const std::int64_t extent : entry.shape.extents()) object["shape"].push_back(extent);
        object["data_offsets"] = {entry.begin, entry.begin + entry.bytes};
    }
    try {
        std::string text = json.dump();
        text.resize((text.size() + 7) / 8 * 8, ' ');
        return text;
    } catch (const Json::exception& error) {
        refuse(std::string("a tensor's name is not UTF-8: ") + error.what());
    }
}

Header decode(std::string_view json, std::uint64_t data_bytes) {
    const Json object = parse(json);
    Header header;
    for (const auto& [name, value] : object.items()) {
        if (name == metadata_key) {
            header.metadata = decode_metadata(value);
        } else {
            header.tensors.push_back(decode_tensor(name, value));
        }
    }
    // Empty tensors before the one that begins at the same place.
    std::ranges::sort(header.tensors, {},
                      [](const TensorEntry& entry) { return std::pair(entry.begin, entry.bytes); });
    check_offsets(header.tensors, data_bytes);
    return header;
}

}  // namespace ddp::checkpoint
