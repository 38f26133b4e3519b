// libFuzzer's entry: the first byte chooses a reader, the rest is the file. fuzz.sh builds and runs
// it. What a reader accepts must lie within the file.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "checkpoint/formats/pickle.hpp"
#include "checkpoint/formats/safetensors_file.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "checkpoint/manifest.hpp"

namespace {

using namespace ddp::checkpoint;

// A sanitizer sees an element that lies outside.
void use(const ddp::StateDict& state) {
    for (const auto& [name, tensor] : state) {
        const auto* data = static_cast<const unsigned char*>(tensor.data());
        unsigned sum = 0;
        for (std::size_t i = 0; i < tensor.bytes(); ++i) sum += data[i];
        if (sum == ~0U) std::abort();
    }
}

void read(int reader, const std::shared_ptr<std::byte[]>& memory, std::size_t size) {
    const std::span<const std::byte> file{memory.get(), size};
    switch (reader) {
        case 0: {
            const auto parsed = parse_safetensors(file);
            for (const auto& entry : parsed.header.tensors) {
                if (entry.begin + entry.bytes > parsed.data.size()) std::abort();
            }
            return;
        }
        case 1:
            decode_manifest({reinterpret_cast<const char*>(file.data()), file.size()});
            return;
        case 2:
            parse_pickle(file);
            return;
        default:
            use(read_torch_file(memory, size));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::shared_ptr<std::byte[]> memory{new std::byte[size - 1]};
    if (size > 1) std::memcpy(memory.get(), data + 1, size - 1);
    try {
        read(data[0] % 4, memory, size - 1);
    } catch (const ddp::CheckpointError&) {
        return 0;
    }
    return 0;
}
