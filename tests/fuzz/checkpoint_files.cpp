// Files of checkpoints, of ours and of others. Input: which reader, then the file. What a reader
// accepts must lie within the file. Seeds are also the fixtures in the folder that
// DDP_FUZZ_FIXTURES names.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/formats/pickle.hpp"
#include "checkpoint/formats/safetensors_file.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "checkpoint/formats/zip.hpp"
#include "checkpoint/manifest.hpp"
#include "fuzz/seeds.hpp"

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

std::string contents_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// An archive, and the pickle in it.
void add_torch_file(const std::string& file, std::vector<std::string>& seeds) {
    seeds.push_back('\3' + file);
    try {
        for (const ZipEntry& entry : read_zip(std::as_bytes(std::span(file)))) {
            if (!entry.name.ends_with("data.pkl")) continue;
            const auto* data = reinterpret_cast<const char*>(entry.bytes.data());
            seeds.push_back('\2' + std::string(data, entry.bytes.size()));
        }
    } catch (const ddp::CheckpointError&) {
        // One from before torch.save wrote archives.
    }
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    std::vector<std::string> all{
        std::string("\0\x40\0\0\0\0\0\0\0", 9) +
            R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}          12345678)",
        "\1ddp checkpoint 1\nepoch 3\nsamples 640\nstep 1075\nfile checkpoint-12.safetensors\n"
        "bytes 37352\nchecksum 8a9136aa\n"};
    const char* const folder = std::getenv("DDP_FUZZ_FIXTURES");
    if (folder == nullptr) return all;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".pth") add_torch_file(contents_of(entry.path()), all);
    }
    return all;
}

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
