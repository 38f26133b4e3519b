// Files that Python wrote (fixtures/make_fixtures.py) with torch.save of two ages and with its
// safetensors, and one of ours (written.pth): read where they are state dictionaries, refused by
// name where they are anything else.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/fixtures.hpp"
#include "checkpoint/formats/zip.hpp"
#include "store/temp_dir.hpp"

namespace {

using ddp::checkpoint_test::fixture;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::string& name) {
    try {
        ddp::read_state_dict(fixture(name));
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr(fixture(name) + " cannot be used: "));
        return error.what();
    }
    return "no error";
}

template <class T>
std::vector<T> elements(const ddp::Tensor& tensor) {
    const auto values = tensor.as<T>();
    return {values.begin(), values.end()};
}

}  // namespace

TEST(TorchFile, GivesAModulesStateInItsOrder) {
    const auto state = ddp::read_state_dict(fixture("module.pth"));
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state) names.push_back(name);
    EXPECT_THAT(names, ElementsAre("module.fc.weight", "module.fc.bias", "module.norm.weight",
                                   "module.norm.bias", "module.norm.running_mean",
                                   "module.norm.running_var", "module.norm.num_batches_tracked"));
    const auto& weight = state["module.fc.weight"];
    EXPECT_EQ(weight.shape(), (ddp::Shape{2, 3}));
    EXPECT_THAT(elements<float>(weight), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(elements<float>(state["module.fc.bias"]), ElementsAre(0.5, -0.5));
    EXPECT_EQ(state["module.norm.num_batches_tracked"].dtype(), ddp::DType::int64);
    EXPECT_EQ(state["module.norm.num_batches_tracked"].shape(), ddp::Shape{});
}

class TensorsOfPython : public testing::TestWithParam<const char*> {
protected:
    const ddp::StateDict state = ddp::read_state_dict(fixture(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Files, TensorsOfPython,
                         testing::Values("tensors.pth", "newest_torch.pth", "python.safetensors",
                                         "written.pth"));

TEST_P(TensorsOfPython, AreOfAllElementTypes) {
    EXPECT_THAT(elements<float>(state["float32"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<double>(state["float64"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<std::int64_t>(state["int64"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<std::int32_t>(state["int32"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<std::int16_t>(state["int16"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<std::int8_t>(state["int8"]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements<std::uint8_t>(state["uint8"]), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(static_cast<float>(state["float16"].as<ddp::float16>()[3]), 3);
    EXPECT_EQ(static_cast<float>(state["bfloat16"].as<ddp::bfloat16>()[3]), 3);
    EXPECT_EQ(state["bool"].as<bool>()[0], false);
    EXPECT_EQ(state["bool"].as<bool>()[1], true);
}

TEST_P(TensorsOfPython, AreOfAllShapesAndStrides) {
    EXPECT_EQ(state.size(), 17U);
    EXPECT_EQ(state["transposed"].shape(), (ddp::Shape{4, 3}));
    EXPECT_THAT(elements<float>(state["transposed"]),
                ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
    EXPECT_THAT(elements<float>(state["row"]), ElementsAre(4, 5, 6, 7));
    EXPECT_THAT(elements<float>(state["column"]), ElementsAre(1, 5, 9));
    EXPECT_THAT(elements<float>(state["scalar"]), ElementsAre(7.5));
    EXPECT_EQ(state["empty"].shape(), (ddp::Shape{0, 3}));
    EXPECT_THAT(elements<float>(state["parameter"]), ElementsAre(1, 1));
}

TEST(TorchFile, SharesWhatWasShared) {
    const auto state = ddp::read_state_dict(fixture("newest_torch.pth"));
    state["whole"].as<float>()[4] = 99;
    EXPECT_EQ(state["row"].as<float>()[0], 99);
}

TEST(TorchFile, FlattensDictionariesInsideEachOther) {
    const auto state = ddp::read_state_dict(fixture("training.pth"));
    EXPECT_EQ(state["epoch"].as<std::int64_t>()[0], 5);
    EXPECT_EQ(state["best"].as<double>()[0], 0.25);
    EXPECT_EQ(state["done"].as<bool>()[0], true);
    EXPECT_EQ(state["big"].as<std::int64_t>()[0], std::int64_t{1} << 40);
    EXPECT_EQ(state["negative"].as<std::int64_t>()[0], -3);
    EXPECT_EQ(state.find("name"), nullptr);
    EXPECT_EQ(state["optimizer.param_groups.0.momentum"].as<double>()[0], 0.9);
    EXPECT_EQ(state["optimizer.state.0.momentum_buffer"].shape(), (ddp::Shape{2, 3}));
    EXPECT_EQ(state.below("model.").size(), 7U);
}

// The names of one dictionary that is there under two, of which the second makes the sum of all names' lengths what is asked: a
// file of torch.save's form with 64 entries of no value, so that one more byte in that name costs one more than the file grows.
void write_names(const std::string& path, std::size_t beyond_the_limit) {
    constexpr std::size_t entries = 64;
    const auto text = [](const std::string& characters) {
        std::string size(4, '\0');
        const auto count = static_cast<std::uint32_t>(characters.size());
        std::memcpy(size.data(), &count, sizeof count);
        return "X" + size + characters;
    };
    std::string inner = "}";
    for (std::size_t i = 0; i < entries; ++i) inner += text(std::to_string(10 + i)) + "Ns";
    const auto pickle = [&](std::size_t name) {
        return "\x80\x02}" + text(std::string(name, 'n')) + inner + "s.";
    };
    // Of the outermost dictionary, the inner one, and its entries; a byte between two names counts.
    const auto names = [&](std::size_t name) {
        return 1 + name + 1 + entries * (name + 1 + 2 + 1);
    };
    const auto limit = [&](std::size_t name) { return 4096 + 64 * pickle(name).size(); };
    std::size_t name = limit(0) - names(0);
    ASSERT_EQ(names(name), limit(name));
    name += beyond_the_limit;
    std::ofstream file(path, std::ios::binary);
    ddp::checkpoint::ZipWriter writer{[&](std::span<const std::byte> bytes) {
        file.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }};
    writer.add("state/data.pkl", pickle(name));
    writer.finish();
}

TEST(TorchFile, HasNamesOfALengthInAllThatIsBounded) {
    const ddp::store_test::TempDir folder;
    const std::string path = folder.file("names.pth");
    write_names(path, 0);
    EXPECT_TRUE(ddp::read_state_dict(path).size() == 0);
    write_names(path, 1);
    try {
        ddp::read_state_dict(path);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("its names are longer than a state's can be"));
    }
}

TEST(TorchFile, IsRefusedByNameWhenItIsNoStateDictionary) {
    EXPECT_THAT(error_of("whole_model.pth"),
                HasSubstr("uses torch.nn.modules.container.Sequential, which is no part of a state "
                          "dictionary; in Python save model.state_dict()"));
    EXPECT_THAT(error_of("tensor.pth"), HasSubstr("something else than a dictionary"));
    EXPECT_THAT(error_of("script.pth"), HasSubstr("TorchScript"));
    EXPECT_THAT(error_of("complex.pth"), HasSubstr("torch.ComplexFloatStorage"));
    EXPECT_THAT(error_of("protocol_4.pth"), HasSubstr("protocol 4"));
    EXPECT_THAT(error_of("old_format.pth"), HasSubstr("format of torch before 1.6"));
    EXPECT_THAT(error_of("expanded.pth"), HasSubstr("repeat more than the file holds"));
    EXPECT_THAT(error_of("make_fixtures.py"), HasSubstr("claims a header of"));
}
