// The header alone: what encode writes, and each thing that decode refuses. The texts are written
// out, so that the format cannot change unseen.
#include "checkpoint/formats/safetensors.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using ddp::checkpoint::decode;
using testing::HasSubstr;

std::string error_of(const std::string& json, std::uint64_t data_bytes) {
    try {
        decode(json, data_bytes);
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":)" + entry(dtype, shape, offsets) + "}";
}

}  // namespace

TEST(Safetensors, EncodesNamesShapesAndPlaces) {
    std::vector<float> weight(6);
    double rate = 0;
    const auto header =
        ddp::checkpoint::plan_header({{"w", {weight.data(), {2, 3}, ddp::DType::float32}},
                                      {"rate", {&rate, {}, ddp::DType::float64}}},
                                     {{"epoch", "3"}});
    const std::string text = encode(header);
    EXPECT_EQ(text.size() % 8, 0U);
    EXPECT_THAT(text,
                testing::StartsWith(R"({"__metadata__":{"epoch":"3"},)"
                                    R"("rate":{"data_offsets":[0,8],"dtype":"F64","shape":[]},)"
                                    R"("w":{"data_offsets":[8,32],"dtype":"F32","shape":[2,3]}})"));
}

TEST(Safetensors, DecodesWhatItEncodes) {
    std::vector<float> a(4);
    std::vector<std::uint8_t> b(3);
    std::vector<std::int64_t> c(2);
    std::vector<std::int32_t> d;
    const auto header = ddp::checkpoint::plan_header(
        {{"a", a}, {"b \"quoted\" \u00fc", b}, {"c", c}, {"d", d}}, {{"epoch", "0"}});
    const auto again = decode(encode(header), 16 + 3 + 16);
    EXPECT_EQ(again.metadata, header.metadata);
    ASSERT_EQ(again.tensors.size(), header.tensors.size());
    for (const auto& expected : header.tensors) {
        const auto found =
            std::ranges::find(again.tensors, expected.name, &ddp::checkpoint::TensorEntry::name);
        ASSERT_NE(found, again.tensors.end()) << expected.name;
        EXPECT_EQ(found->dtype, expected.dtype);
        EXPECT_EQ(found->shape, expected.shape);
        EXPECT_EQ(found->begin, expected.begin);
        EXPECT_EQ(found->bytes, expected.bytes);
    }
}

TEST(Safetensors, DecodesAHeaderThatPythonWrote) {
    // safetensors.numpy.save({"weight": np.zeros((2, 2), "float32"), "steps": np.zeros((),
    // "int64")})
    const auto header = decode(R"({"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                               R"("weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}}  )",
                               24);
    ASSERT_EQ(header.tensors.size(), 2U);
    EXPECT_EQ(header.tensors[1].name, "weight");
    EXPECT_EQ(header.tensors[1].shape, (ddp::Shape{2, 2}));
}

TEST(Safetensors, RefusesTwoTensorsOfOneName) {
    std::vector<float> data(1);
    EXPECT_THROW(ddp::checkpoint::plan_header({{"w", data}, {"w", data}}, {}),
                 ddp::CheckpointError);
    EXPECT_THROW(ddp::checkpoint::plan_header({{"__metadata__", data}}, {}), ddp::CheckpointError);
    const std::string tensor = entry("U8", "[0]", "[0,0]");
    EXPECT_THAT(error_of(R"({"w":)" + tensor + R"(,"w":)" + tensor + "}", 0),
                HasSubstr("has \"w\" twice"));
}

TEST(Safetensors, RefusesWhatIsNotAnObject) {
    for (const char* text : {"", "[]", "null", " {}", "7"}) {
        EXPECT_THAT(error_of(text, 0), HasSubstr("not a JSON object")) << text;
    }
    EXPECT_THAT(error_of("{", 0), HasSubstr("not valid JSON"));
    EXPECT_THAT(error_of(R"({"w":3})", 0),
                HasSubstr("\"w\" does not have exactly dtype, shape and data_offsets"));
    EXPECT_THAT(error_of(std::string("{\"\xff\":3}"), 0), HasSubstr("not valid JSON"));
    EXPECT_THAT(error_of(R"({"w":{"shape":[[[[1]]]]}})", 0), HasSubstr("nested too deeply"));
}

TEST(Safetensors, RefusesBadFields) {
    EXPECT_THAT(error_of(one("F8", "[1]", "[0,1]"), 1), HasSubstr("unknown dtype: \"F8\""));
    EXPECT_THAT(error_of(one("U8", "[-1]", "[0,1]"), 1), HasSubstr("bad extent: -1"));
    EXPECT_THAT(error_of(one("U8", "[1.5]", "[0,1]"), 1), HasSubstr("bad extent: 1.5"));
    EXPECT_THAT(error_of(one("U8", "1", "[0,1]"), 1), HasSubstr("no shape"));
    EXPECT_THAT(error_of(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1), HasSubstr("no shape"));
    EXPECT_THAT(error_of(one("U8", "[1]", "[0]"), 1), HasSubstr("bad data_offsets"));
    EXPECT_THAT(error_of(one("U8", "[1]", "[0,-1]"), 1), HasSubstr("bad data_offsets"));
    EXPECT_THAT(error_of(R"({"__metadata__":{"epoch":3}})", 0), HasSubstr("not a string"));
    EXPECT_THAT(error_of(R"({"__metadata__":[]})", 0), HasSubstr("not an object"));
    EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0),
                HasSubstr("does not have exactly"));
}

TEST(Safetensors, RefusesSizesThatDoNotFit) {
    EXPECT_THAT(error_of(one("F32", "[2]", "[0,7]"), 7), HasSubstr("do not fit its shape [2]"));
    EXPECT_THAT(error_of(one("F32", "[2]", "[8,0]"), 8), HasSubstr("do not fit"));
    // 2^62 elements of 4 bytes: 2^64, which is 0 when nobody looks.
    EXPECT_THAT(error_of(one("F32", "[4611686018427387904]", "[0,0]"), 0), HasSubstr("do not fit"));
    EXPECT_THAT(error_of(one("U8", "[4]", "[0,4]"), 5), HasSubstr("take 4 bytes"));
    EXPECT_THAT(error_of(one("U8", "[4]", "[0,4]"), 3), HasSubstr("take 4 bytes"));
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
    const auto two = [](const std::string& second) {
        return R"({"a":)" + entry("U8", "[4]", "[0,4]") + R"(,"b":)" + second + "}";
    };
    EXPECT_EQ(error_of(two(entry("U8", "[4]", "[4,8]")), 8), "no error");
    EXPECT_THAT(error_of(two(entry("U8", "[4]", "[3,7]")), 7), HasSubstr("overlaps"));
    EXPECT_THAT(error_of(two(entry("U8", "[4]", "[5,9]")), 9), HasSubstr("hole"));
    EXPECT_THAT(error_of(two(entry("U8", "[4]", "[0,4]")), 4), HasSubstr("overlaps"));
    EXPECT_THAT(error_of(one("U8", "[4]", "[1,5]"), 5), HasSubstr("hole"));
}
