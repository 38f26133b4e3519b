// .pth files of our own: their bytes, what is read back of them, and that a disk that fails or
// loses power leaves the file of before or the new one. That torch.load reads them is a test of
// tests/interop.
#include "checkpoint/formats/torch_file.hpp"

#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/fixtures.hpp"
#include "checkpoint/formats/zip.hpp"
#include "checkpoint/simulated_disk.hpp"

namespace {

namespace fs = std::filesystem;
using ddp::DType;
using ddp::checkpoint::Existing;
using ddp::checkpoint::write_torch_file;
using ddp::checkpoint_test::DiskImage;
using ddp::checkpoint_test::fixture;
using ddp::checkpoint_test::SimulatedDisk;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

std::string bytes_at(const fs::path& path) {
    std::ifstream in{path, std::ios::binary};
    EXPECT_TRUE(in) << path;
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string bytes_on(const DiskImage& image, const std::string& name) {
    const auto found = image.names.find(name);
    return found == image.names.end() ? "" : image.contents[found->second];
}

std::string written(const std::vector<ddp::NamedTensor>& tensors) {
    SimulatedDisk disk;
    write_torch_file(disk, "file", tensors);
    EXPECT_THAT(disk.names(), ElementsAre("file"));
    return bytes_on(disk.durable(), "file");
}

ddp::StateDict read(const std::string& bytes) {
    const std::shared_ptr<std::byte[]> memory{new std::byte[bytes.size()]};
    std::memcpy(memory.get(), bytes.data(), bytes.size());
    return ddp::checkpoint::read_torch_file(memory, bytes.size());
}

std::string bits_of(const ddp::TensorView& tensor) {
    return {static_cast<const char*>(tensor.data), tensor.bytes()};
}

void expect_same(const ddp::StateDict& found, const std::vector<ddp::NamedTensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    std::size_t i = 0;
    for (const auto& [name, tensor] : found) {
        EXPECT_EQ(name, expected[i].name);
        EXPECT_EQ(tensor.dtype(), expected[i].tensor.dtype) << name;
        EXPECT_EQ(tensor.shape(), expected[i].tensor.shape) << name;
        EXPECT_EQ(bits_of(tensor), bits_of(expected[i].tensor)) << name;
        ++i;
    }
}

// A temporary folder of the real disk.
class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "ddp-torch-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw ddp::SystemError("mkdtemp " + name, errno);
        path_ = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { fs::remove_all(path_); }
    fs::path operator/(const std::string& name) const { return path_ / name; }
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
    }

private:
    fs::path path_;
};

std::string error_of_writing(const fs::path& path, const std::string& name) {
    std::vector<float> value{1};
    try {
        ddp::write_torch_state_dict(path, ddp::StateDict{{{"a", value}, {name, value}}});
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

// Each pattern of bits comes back: NaNs with their payloads, the sign of zero, subnormals.
TEST(WrittenTorchFile, KeepsTheBitsOfEveryElementType) {
    std::array<std::uint64_t, 8> bits{
        0x7ff0'0000'0000'0001, 0xfff8'dead'beef'0001, 0x8000'0000'0000'0000, 0x0000'0000'0000'0001,
        0x0123'4567'89ab'cdef, 0x7f80'0001'7fc0'0002, 0x7c01'fe01'8000'0001, 0x7f81'ffc1'8000'0001};
    std::array<bool, 64> flags{};
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i % 3 == 0;
    std::vector<ddp::NamedTensor> tensors;
    for (const DType dtype :
         {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64,
          DType::int32, DType::int16, DType::int8, DType::uint8, DType::boolean}) {
        void* data = bits.data();
        if (dtype == DType::boolean) data = flags.data();
        const auto count = static_cast<std::int64_t>(sizeof bits / size_of(dtype));
        tensors.push_back({std::string(to_string(dtype)), {data, {count / 4, 4}, dtype}});
    }
    expect_same(read(written(tensors)), tensors);
}

TEST(WrittenTorchFile, KeepsShapesAndTheOrder) {
    std::vector<float> values(24);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const auto view = [&](const ddp::Shape& shape) {
        return ddp::TensorView{values.data(), shape, DType::float32};
    };
    const std::vector<ddp::NamedTensor> tensors{
        {"z", view({24})},
        {"scalar", view({})},
        {"a", view({2, 3, 4})},
        {"four", view({1, 2, 3, 4})},
        {"eight", view({1, 1, 2, 1, 3, 1, 1, 2})},
        {"empty", view({0})},
        {"empty and wide", view({3, 0, 70'000})},
        {"empty and without end", view({0, 1LL << 40, 1LL << 40, 5})}};
    expect_same(read(written(tensors)), tensors);
    expect_same(read(written({})), {});
}

TEST(WrittenTorchFile, KeepsEveryNameThatIsUtf8) {
    std::vector<float> value{1};
    std::vector<ddp::NamedTensor> tensors;
    for (const std::string& name :
         {""s, "."s, "a/b"s, "a\nb\"\\"s, "a\0b"s, "\xc3\xa9"s, "\xe9\x87\x8d\xe3\x81\xbf"s,
          "\xf0\x9f\x98\x80"s, "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"s, "_metadata"s, "cpu"s,
          "storage"s, std::string(70'000, 'x')}) {
        tensors.push_back({name, value});
    }
    expect_same(read(written(tensors)), tensors);
}

TEST(WrittenTorchFile, IsRefusedForANameThatIsNot) {
    const Folder folder;
    const fs::path path = folder / "net.pth";
    std::ofstream(path) << "another file";
    for (const char* name :
         {"\xff", "\x80", "a\xc3", "\xc3(", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xe9\x87", "\xf8\x88\x80\x80\x80"}) {
        EXPECT_EQ(error_of_writing(path, name),
                  "checkpoint: cannot write " + path.string() +
                      ": the name of tensor 1 of 2 is not UTF-8, which Python's texts are; rename "
                      "it");
    }
    EXPECT_EQ(bytes_at(path), "another file");
    EXPECT_EQ(folder.files(), 1U);
}

TEST(WrittenTorchFile, SharesMemoryThatIsTheSameAndNoOther) {
    std::vector<float> values{1, 2, 3, 4};
    const std::span all(values);
    std::vector<std::int32_t> others(4);
    std::memcpy(others.data(), values.data(), sizeof(float) * 4);
    const auto state = read(written({{"first", all},
                                     {"tied", {values.data(), {2, 2}, DType::float32}},
                                     {"part", all.first(2)},
                                     {"bits", {values.data(), {4}, DType::int32}},
                                     {"empty", {values.data(), {0}, DType::float32}},
                                     {"also empty", {values.data(), {0}, DType::float32}}}));
    state["first"].as<float>()[1] = 9;
    EXPECT_EQ(state["tied"].as<float>()[1], 9);
    EXPECT_EQ(state["part"].as<float>()[1], 2);
    EXPECT_EQ(state["bits"].as<std::int32_t>()[1], others[1]);
    EXPECT_NE(state["empty"].data(), state["also empty"].data());
}

TEST(WrittenTorchFile, HasTheBytesThatItAlwaysHad) {
    const auto state = ddp::read_state_dict(fixture("tensors.pth"));
    EXPECT_TRUE(written(state.views()) == bytes_at(fixture("written.pth")))
        << "the bytes have changed: a new fixture is made with ddp_test_convert_state";
}

TEST(WrittenTorchFile, IsAnArchiveInTorchsOrderWhoseDataIsAligned) {
    const std::string file = bytes_at(fixture("written.pth"));
    const std::span bytes = std::as_bytes(std::span(file));
    std::vector<std::string> names;
    for (const auto& entry : ddp::checkpoint::read_zip(bytes)) {
        names.emplace_back(entry.name);
        EXPECT_EQ((entry.bytes.data() - bytes.data()) % 64, 0) << entry.name;
    }
    ASSERT_EQ(names.size(), 20U);
    EXPECT_EQ(names[0], "archive/data.pkl");
    EXPECT_EQ(names[1], "archive/byteorder");
    EXPECT_EQ(names[2], "archive/data/0");
    EXPECT_EQ(names[18], "archive/data/16");
    EXPECT_EQ(names[19], "archive/version");
}

TEST(WrittenTorchFile, ReplacesAFileThroughTheStateDictionarysInterface) {
    const Folder folder;
    const fs::path path = folder / "\xe9\x87\x8d.pth";
    std::vector<double> value{0.5, -2};
    std::ofstream(path) << "what was there before";
    ddp::write_torch_state_dict(path, ddp::StateDict{{{"w", value}}});
    EXPECT_EQ(folder.files(), 1U);
    EXPECT_THAT(ddp::read_state_dict(path)["w"].as<double>(), ElementsAre(0.5, -2));
    try {
        ddp::write_torch_state_dict(folder / "none/net.pth", ddp::StateDict{{{"w", value}}});
        ADD_FAILURE() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cannot create "));
        EXPECT_THAT(error.what(), HasSubstr("none/net.pth"));
    }
}

TEST(WrittenTorchFile, IsTheOldOneOrTheNewAfterALossOfPower) {
    std::vector<float> old(3'000, 1.F);
    std::vector<float> next(3'000, 2.F);
    const std::string before = written({{"w", old}});
    const std::string after = written({{"w", next}});
    SimulatedDisk disk;
    write_torch_file(disk, "net.pth", {{"w", old}}, Existing::replaced);
    EXPECT_EQ(bytes_on(disk.durable(), "net.pth"), before);
    std::size_t states = 0;
    std::size_t bad = 0;
    disk.on_change = [&] {
        disk.for_each_power_loss([&](const DiskImage& image) {
            const std::string left = bytes_on(image, "net.pth");
            ++states;
            bad += left != before && left != after ? 1 : 0;
        });
    };
    write_torch_file(disk, "net.pth", {{"w", next}}, Existing::replaced);
    EXPECT_EQ(bytes_on(disk.durable(), "net.pth"), after);
    EXPECT_EQ(bad, 0U);
    EXPECT_GT(states, 100U);
}

TEST(WrittenTorchFile, IsTheOldOneWhenAnyCallFails) {
    std::vector<float> old(30, 1.F);
    std::vector<float> next(30, 2.F);
    const std::string before = written({{"w", old}});
    const std::string after = written({{"w", next}});
    std::size_t failures = 0;
    for (std::size_t nth = 0;; ++nth) {
        SimulatedDisk disk;
        write_torch_file(disk, "net.pth", {{"w", old}}, Existing::replaced);
        std::size_t call = 0;
        std::string failed;
        disk.fault = [&](std::string_view name) {
            if (call++ != nth) return 0;
            failed = name;
            return ENOSPC;
        };
        try {
            write_torch_file(disk, "net.pth", {{"w", next}}, Existing::replaced);
            if (call <= nth) break;
            ADD_FAILURE() << failed << " failed and nobody said so";
        } catch (const ddp::CheckpointError& error) {
            EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
        }
        ++failures;
        disk.fault = {};
        const DiskImage image = disk.now();
        // The last call alone comes after the new file's name.
        const bool renamed = failed == "sync_directory" && bytes_on(image, "net.pth") == after;
        EXPECT_TRUE(renamed || bytes_on(image, "net.pth") == before) << failed;
        EXPECT_THAT(disk.names(), ElementsAre("net.pth")) << failed;
        EXPECT_EQ(disk.open_files(), 0U) << failed;
    }
    EXPECT_GT(failures, 10U);
}
