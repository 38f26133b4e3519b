// State dictionaries in files, told apart by how they begin.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "checkpoint/durable_file.hpp"
#include "checkpoint/formats/safetensors_file.hpp"
#include "checkpoint/formats/torch_file.hpp"

namespace ddp {

namespace {

using Memory = std::shared_ptr<std::byte[]>;

StateDict read_safetensors(const Memory& memory, std::size_t size) {
    const auto file = checkpoint::parse_safetensors({memory.get(), size});
    StateDict state;
    for (const auto& entry : file.header.tensors) {
        auto* data = const_cast<std::byte*>(file.data.data()) + entry.begin;
        Memory owner = memory;
        if (reinterpret_cast<std::uintptr_t>(data) % size_of(entry.dtype) != 0) {
            owner = Memory{new std::byte[entry.bytes]};
            std::memcpy(owner.get(), data, entry.bytes);
            data = owner.get();
        }
        state.add(entry.name, {TensorView{data, entry.shape, entry.dtype}, owner});
    }
    return state;
}

}  // namespace

StateDict read_state_dict(const std::filesystem::path& file) {
    try {
        std::error_code missing;  // which reading it will say
        const auto target = std::filesystem::canonical(file, missing);
        auto bytes = checkpoint::read_file(checkpoint::system_files(), missing ? file : target,
                                           std::numeric_limits<std::uint64_t>::max(),
                                           checkpoint::Owner::any);
        const std::size_t size = bytes.size;
        const Memory memory = std::move(bytes.data);
        if (checkpoint::is_torch_file({memory.get(), size})) {
            return checkpoint::read_torch_file(memory, size);
        }
        return read_safetensors(memory, size);
    } catch (const CheckpointError& error) {
        throw CheckpointError("state dict: " + file.string() + " cannot be used: " + error.what());
    }
}

void write_state_dict(const std::filesystem::path& file, const StateDict& state) {
    checkpoint::write_safetensors(checkpoint::system_files(), file, state.views(), {},
                                  checkpoint::Existing::replaced);
}

void write_torch_state_dict(const std::filesystem::path& file, const StateDict& state) {
    checkpoint::write_torch_file(checkpoint::system_files(), file, state.views(),
                                 checkpoint::Existing::replaced);
}

}  // namespace ddp
