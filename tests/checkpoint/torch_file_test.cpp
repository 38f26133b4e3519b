// Files that Python wrote (fixtures/make_fixtures.py) with torch.save of two ages and with its
// safetensors, and one of ours (written.pth): read where they are state dictionaries, refused by
// name where they are anything else.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/fixtures.hpp"

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
