// Files with a few bytes changed, cut or repeated at random: each reader refuses them or gives what
// was there before, without a crash and without memory that the file's length does not justify.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/allocations.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/formats/pickle.hpp"
#include "checkpoint/formats/safetensors_file.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "checkpoint/formats/zip.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/simulated_disk.hpp"
#include "support/seed.hpp"

namespace {

using namespace ddp::checkpoint;

std::string fixture(const std::string& name) {
    std::ifstream in{DDP_CHECKPOINT_FIXTURES "/" + name, std::ios::binary};
    EXPECT_TRUE(in) << name;
    return {std::istreambuf_iterator<char>(in), {}};
}

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

std::string mutated(std::string bytes, std::mt19937& random) {
    const auto below = [&](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>{0, limit - 1}(random);
    };
    for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
        const std::size_t at = below(bytes.size());
        const std::size_t count = std::min(bytes.size() - at, 1 + below(16));
        switch (below(6)) {
            case 0:
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
                break;
            case 1:
                bytes[at] = static_cast<char>(below(256));
                break;
            case 2:  // the largest and smallest numbers
                std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count,
                            below(2) == 0 ? '\xff' : '\0');
                break;
            case 3:
                bytes.resize(at);
                break;
            case 4:
                bytes.erase(at, count);
                break;
            default:
                bytes.insert(below(bytes.size()), bytes.substr(at, count));
                break;
        }
    }
    return bytes;
}

struct Tally {
    std::size_t refused = 0;
    std::size_t accepted = 0;
    std::size_t harmless = 0;  // the mutation changed nothing
};

// Reads mutations of `whole`; `read` throws CheckpointError where it refuses.
Tally read_mutations(const std::string& whole, std::size_t count, std::mt19937& random,
                     const std::function<void(const std::string&)>& read) {
    Tally tally;
    read(whole);
    for (std::size_t i = 0; i < count; ++i) {
        const std::string bytes = mutated(whole, random);
        if (bytes == whole) {
            ++tally.harmless;
            continue;
        }
        ddp::checkpoint_test::forget_allocations();
        try {
            read(bytes);
            ++tally.accepted;
        } catch (const ddp::CheckpointError&) {
            ++tally.refused;
        }
        // A value of a pickle takes 80 bytes, their array twice as many when it grows.
        EXPECT_LE(ddp::checkpoint_test::largest_allocation(), 4096 + 200 * whole.size());
    }
    return tally;
}

std::shared_ptr<std::byte[]> shared(const std::string& bytes) {
    std::shared_ptr<std::byte[]> memory{new std::byte[bytes.size()]};
    std::memcpy(memory.get(), bytes.data(), bytes.size());
    return memory;
}

std::atomic<unsigned> sum_of_bytes{0};

// Touches every element, so that a sanitizer sees a tensor that lies outside.
void use(const ddp::StateDict& state) {
    for (const auto& [name, tensor] : state) {
        const auto* data = static_cast<const unsigned char*>(tensor.data());
        for (std::size_t i = 0; i < tensor.bytes(); ++i) sum_of_bytes += data[i];
    }
}

void mutate_safetensors(std::size_t count, std::mt19937& random) {
    std::vector<float> weight(30);
    std::vector<std::int64_t> steps(3);
    ddp::checkpoint_test::SimulatedDisk disk;
    write_safetensors(disk, "file", {{"weight", weight}, {"steps", steps}}, {{"format", "ddp"}});
    const FileBytes file = read_file(disk, "file");
    const std::string whole{reinterpret_cast<const char*>(file.data.get()), file.size};
    const Tally tally = read_mutations(whole, count, random, [](const std::string& bytes) {
        const auto memory = shared(bytes);  // exactly as long: a sanitizer sees what is beyond
        const auto parsed = parse_safetensors({memory.get(), bytes.size()});
        for (const auto& entry : parsed.header.tensors) {
            if (entry.begin + entry.bytes > parsed.data.size()) throw std::logic_error("outside");
        }
    });
    // Without the manifest's checksum, changed elements are not seen.
    EXPECT_GT(tally.refused, count / 4);
}

void mutate_manifest(std::size_t count, std::mt19937& random) {
    const std::string whole = encode(Manifest{{.epoch = 3, .samples = 640, .step = 1075},
                                              "checkpoint-12.safetensors",
                                              37352,
                                              0x8a9136aaU});
    const Tally tally = read_mutations(whole, count, random,
                                       [](const std::string& bytes) { decode_manifest(bytes); });
    EXPECT_EQ(tally.accepted, 0U);
}

// A folder of two checkpoints of which one file is mutated: the older one, or nothing, is read.
void mutate_checkpoint(std::size_t count, std::mt19937& random) {
    for (const bool manifest : {false, true}) {
        ddp::checkpoint_test::SimulatedDisk disk;
        std::vector<float> weight(30, 1.F);
        CheckpointFolder folder{disk, "run", 2};
        folder.write({.epoch = 1}, {{"weight", weight}});
        const std::string name = "run/" + (manifest ? CheckpointFolder::manifest_name(1)
                                                    : CheckpointFolder::tensors_name(1));
        const auto image = disk.durable();
        const std::string whole = image.contents[image.names.at(name)];
        const Tally tally = read_mutations(whole, count / 2, random, [&](const std::string& bytes) {
            auto changed = image;
            changed.contents[changed.names.at(name)] = bytes;
            ddp::checkpoint_test::SimulatedDisk damaged{std::move(changed)};
            std::vector<float> loaded(30);
            CheckpointFolder{damaged, "run", 2}.read({{"weight", loaded}});
        });
        EXPECT_EQ(tally.accepted, 0U);
    }
}

// The whole file: the archive's checksums find nearly everything. Then the pickle alone, which they
// would protect from most mutations.
void mutate_torch_files(std::size_t count, std::mt19937& random) {
    for (const char* name : {"module.pth", "tensors.pth", "training.pth", "written.pth"}) {
        const std::string whole = fixture(name);
        const Tally tally = read_mutations(whole, count / 8, random, [](const std::string& bytes) {
            use(read_torch_file(shared(bytes), bytes.size()));
        });
        EXPECT_GT(tally.refused, count / 8 / 4) << name;
        for (const auto& entry : read_zip(bytes_of(whole))) {
            if (!entry.name.ends_with("/data.pkl")) continue;
            const std::string pickle{reinterpret_cast<const char*>(entry.bytes.data()),
                                     entry.bytes.size()};
            read_mutations(pickle, count / 8, random, [](const std::string& bytes) {
                parse_pickle({shared(bytes).get(), bytes.size()});
            });
        }
    }
}

void mutate_all(std::size_t count) {
    const unsigned seed = ddp::store_test::random_seed();
    std::mt19937 random{seed};
    mutate_safetensors(count / 4, random);
    mutate_manifest(count / 4, random);
    mutate_checkpoint(count / 4, random);
    mutate_torch_files(count / 4, random);
}

}  // namespace

TEST(MutatedFiles, AreRefusedOrHarmless) { mutate_all(4'000); }
TEST(MutatedFiles, SoakAreRefusedOrHarmless) { mutate_all(100'000); }
