// The length, the header, and the tensors in the header's order.
#include "checkpoint/formats/safetensors_file.hpp"

#include <ddp/error.hpp>

#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "checkpoint/durable_file.hpp"
#include "checkpoint/staging.hpp"

namespace ddp::checkpoint {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

WrittenFile write_safetensors(Files& files, const std::string& path,
                              const std::vector<NamedTensor>& tensors,
                              std::map<std::string, std::string> metadata, Existing existing) {
    std::unordered_map<std::string_view, TensorView> views;
    for (const auto& [name, tensor] : tensors) views.emplace(name, tensor);
    const Header header = plan_header(tensors, std::move(metadata));
    const std::string text = encode(header);
    const std::uint64_t length = text.size();
    FileWriter writer{files, path, existing};
    writer.write(std::as_bytes(std::span(&length, 1)));
    writer.write(std::as_bytes(std::span(text)));
    Staging staging;
    for (const TensorEntry& entry : header.tensors) {
        staging.read(views.at(entry.name),
                     [&](std::span<const std::byte> part) { writer.write(part); });
    }
    writer.commit();
    return {writer.bytes(), writer.crc()};
}

SafetensorsView parse_safetensors(std::span<const std::byte> file) {
    std::uint64_t header_bytes = 0;
    if (file.size() < sizeof header_bytes) throw CheckpointError("it is too short");
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const auto rest = file.subspan(sizeof header_bytes);
    if (header_bytes > max_header_bytes || header_bytes > rest.size()) {
        throw CheckpointError("it claims a header of " + std::to_string(header_bytes) +
                              " bytes; the file has " + std::to_string(file.size()));
    }
    const auto data = rest.subspan(header_bytes);
    const std::string_view text{reinterpret_cast<const char*>(rest.data()), header_bytes};
    return {decode(text, data.size()), data};
}

}  // namespace ddp::checkpoint
