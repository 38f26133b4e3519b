// The header of a safetensors file (format.md) to and from text; no files here. Invariant: a
// decoded header describes tensors that fill the data exactly, without holes or overlap.
#pragma once

#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::checkpoint {

constexpr std::uint64_t max_header_bytes = 100'000'000;

// A tensor's range of the data.
struct TensorEntry {
    std::string name;
    DType dtype;
    Shape shape;
    std::uint64_t begin;  // offset from the first byte after the header
    std::uint64_t bytes;
};

struct Header {
    std::map<std::string, std::string> metadata;
    std::vector<TensorEntry> tensors;  // by offset
};

// Places the tensors one after the other, wider elements first. Throws CheckpointError for two of
// one name.
Header plan_header(const std::vector<NamedTensor>& tensors,
                   std::map<std::string, std::string> metadata);

// The JSON text, padded to a multiple of 8 bytes.
std::string encode(const Header& header);
// Throws CheckpointError that says what is wrong (without the file's name) for everything that
// format.md refuses; `data_bytes` is what the file holds after the header.
Header decode(std::string_view json, std::uint64_t data_bytes);

}  // namespace ddp::checkpoint
