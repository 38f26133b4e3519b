// State dictionaries between nets: what is loaded, what is refused and in which words, and that
// nothing changes when anything does not fit.
#include <ddp/checkpoint.hpp>
#include <ddp/state_dict.hpp>

#include <ddp/error.hpp>

#include "contract/control_page.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

// AddressSanitizer would end the program instead of giving nullptr.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A net as a user writes it: two parameters and a buffer.
struct Net {
    std::span<ddp::Parameter> parameters() { return list; }
    std::vector<ddp::NamedTensor> buffers() { return {{"norm.count", count}}; }

    std::vector<float> weight = {1, 2, 3, 4};
    std::vector<float> bias = {5, 6};
    std::vector<float> grads = std::vector<float>(4);
    std::vector<std::int64_t> count = {9};
    std::vector<ddp::Parameter> list{{"fc.weight",
                                      {weight.data(), {2, 2}, ddp::DType::float32},
                                      {grads.data(), {2, 2}, ddp::DType::float32}},
                                     {"fc.bias", bias, std::span(grads).first(2)}};
};

struct Wrapper {
    Net& module() { return net; }
    Net& net;
};

struct Optimizer {
    std::vector<ddp::NamedTensor> state_dict() { return {{"momentum", momentum}}; }
    std::vector<double> momentum = {0.5};
};

std::vector<std::string> names_of(const ddp::StateDict& state) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state) names.push_back(name);
    return names;
}

template <class Object>
std::string error_of_loading(Object& object, const ddp::StateDict& state,
                             const ddp::LoadOptions& options = {}) {
    try {
        ddp::load_state_dict(object, state, options);
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

Net zeros() {
    Net net;
    std::ranges::fill(net.weight, 0.F);
    std::ranges::fill(net.bias, 0.F);
    net.count = {0};
    return net;
}

}  // namespace

TEST(StateDict, HasTheNetsNamesInOrderAlsoThroughAWrapper) {
    Net net;
    Wrapper wrapper{net};
    const auto names = ElementsAre("fc.weight", "fc.bias", "norm.count");
    EXPECT_THAT(names_of(ddp::StateDict{ddp::named_tensors(net)}), names);
    EXPECT_THAT(names_of(ddp::StateDict{ddp::named_tensors(wrapper)}), names);
}

TEST(StateDict, IsACopy) {
    Net net;
    const ddp::StateDict state{ddp::named_tensors(net)};
    net.weight[0] = -1;
    EXPECT_EQ(state["fc.weight"].as<float>()[0], 1);
    EXPECT_EQ(state["fc.weight"].shape(), (ddp::Shape{2, 2}));
}

TEST(StateDict, MovesBetweenWrappedAndBareNets) {
    Net source;
    Wrapper wrapper{source};
    Net target;
    std::ranges::fill(target.weight, 0.F);
    target.count = {0};
    const auto result = ddp::load_state_dict(target, ddp::StateDict{ddp::named_tensors(wrapper)});
    EXPECT_THAT(result.missing_keys, testing::IsEmpty());
    EXPECT_THAT(result.unexpected_keys, testing::IsEmpty());
    EXPECT_EQ(target.weight, source.weight);
    EXPECT_EQ(target.count, source.count);
}

TEST(StateDict, IsAlsoAnOptimisers) {
    Optimizer source;
    Optimizer target{{0}};
    ddp::load_state_dict(target, ddp::StateDict{ddp::named_tensors(source)});
    EXPECT_EQ(target.momentum, source.momentum);
}

TEST(StateDict, IsAlsoThePositionOfSamplerAndLoader) {
    ddp::Progress saved{.epoch = 3, .samples = 640, .step = 1075};
    const ddp::StateDict state{ddp::named_tensors(saved)};
    EXPECT_THAT(names_of(state), ElementsAre("epoch", "samples", "step"));
    ddp::Progress loaded;
    ddp::load_state_dict(loaded, state);
    EXPECT_EQ(loaded, saved);
}

TEST(StateDict, NamesMissingAndUnexpectedKeysAndTheCure) {
    Net net = zeros();
    Net source;
    const auto prefixed = ddp::StateDict{ddp::named_tensors(source)}.add_prefix("module.");
    const std::string error = error_of_loading(net, prefixed);
    EXPECT_THAT(error, HasSubstr(R"(Missing key(s) in state_dict: "fc.weight", "fc.bias", )"
                                 R"("norm.count". Unexpected key(s) in state_dict: )"
                                 R"("module.fc.weight", "module.fc.bias", "module.norm.count".)"));
    EXPECT_THAT(error, HasSubstr(R"(load_state_dict(..., {.strip_prefix = "module."}))"));
    EXPECT_THAT(net.weight, ElementsAre(0, 0, 0, 0));
    ddp::load_state_dict(net, prefixed, {.strip_prefix = "module."});
    EXPECT_EQ(net.weight, source.weight);
}

TEST(StateDict, NamesThePrefixThatIsLacking) {
    std::vector<float> value{1};
    const std::vector<ddp::NamedTensor> wanted{{"net.w", value}};
    std::vector<float> given{2};
    const ddp::StateDict state{{{"w", given}}};
    try {
        ddp::load_state_dict(wanted, state);
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr(R"({.add_prefix = "net."})"));
    }
    ddp::load_state_dict(wanted, state, {.add_prefix = "net."});
    EXPECT_EQ(value[0], 2);
}

TEST(StateDict, SuggestsNoPrefixWhereNoneWouldHelp) {
    std::vector<float> value{1};
    const ddp::StateDict state{{{"other", value}}};
    Net net;
    EXPECT_THAT(error_of_loading(net, state), testing::Not(HasSubstr("prefix")));
}

TEST(StateDict, LoadsWhatIsThereWhenNotStrict) {
    Net net = zeros();
    std::vector<float> bias{7, 8};
    std::vector<float> other{1};
    const ddp::StateDict state{{{"fc.bias", bias}, {"other", other}}};
    const auto result = ddp::load_state_dict(net, state, {.strict = false});
    EXPECT_THAT(result.missing_keys, ElementsAre("fc.weight", "norm.count"));
    EXPECT_THAT(result.unexpected_keys, ElementsAre("other"));
    EXPECT_EQ(net.bias, bias);
}

TEST(StateDict, ChangesNothingWhenOneShapeOrTypeDoesNotFit) {
    Net net = zeros();
    std::vector<float> weight{1, 2, 3, 4};
    std::vector<double> bias{5, 6};
    std::vector<std::int64_t> count{1};
    const ddp::StateDict state{{{"fc.weight", weight}, {"fc.bias", bias}, {"norm.count", count}}};
    const std::string error = error_of_loading(net, state);
    EXPECT_THAT(error, HasSubstr("Size mismatch for \"fc.weight\": [4] in the state, [2, 2] here"));
    EXPECT_THAT(error, HasSubstr("Type mismatch for \"fc.bias\": float64 in the state, float32 "
                                 "here; {.convert_dtype = true} converts."));
    EXPECT_THAT(net.weight, ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(net.count, ElementsAre(0));
    EXPECT_THAT(error_of_loading(net, state, {.strict = false}), HasSubstr("mismatch"));
}

TEST(StateDict, ConvertsTypesWhenAskedTo) {
    std::vector<ddp::float16> half{ddp::float16(1.5F), ddp::float16(-2)};
    std::vector<std::int64_t> integers{3, -4};
    std::vector<double> doubles{0.5, 1e300};
    const ddp::StateDict state{{{"a", half}, {"b", integers}, {"c", doubles}}};
    std::vector<double> a(2);
    std::vector<float> b(2);
    std::vector<float> c(2);
    const std::vector<ddp::NamedTensor> targets{{"a", a}, {"b", b}, {"c", c}};
    ddp::load_state_dict(targets, state, {.convert_dtype = true});
    EXPECT_THAT(a, ElementsAre(1.5, -2));
    EXPECT_THAT(b, ElementsAre(3, -4));
    EXPECT_THAT(c, ElementsAre(0.5F, std::numeric_limits<float>::infinity()));
    std::vector<std::int32_t> integer_target(2);
    try {
        ddp::load_state_dict({{"a", integer_target}}, state.below("").strip_prefix(""),
                             {.strict = false, .convert_dtype = true});
        FAIL() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("float16 in the state, int32 here."));
    }
}

TEST(StateDict, GivesTheTensorsBelowAPrefix) {
    std::vector<float> value{1};
    const ddp::StateDict state{{{"model.w", value}, {"optimizer.w", value}, {"model.b", value}}};
    EXPECT_THAT(names_of(state.below("model.")), ElementsAre("w", "b"));
    EXPECT_THROW(state["w"], ddp::CheckpointError);
    EXPECT_EQ(state.find("w"), nullptr);
    EXPECT_THROW((ddp::StateDict{{{"a", value}, {"a", value}}}), ddp::UsageError);
}

// As a model hub's cache has them: another user's files behind links.
TEST(StateDict, IsReadThroughALinkAndFromAnybodysFile) {
    std::string dir = (fs::temp_directory_path() / "ddp-state-XXXXXX").string();
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    const fs::path file = fs::path(dir) / "net.safetensors";
    const fs::path link = fs::path(dir) / "snapshot";
    Net net;
    write_state_dict(file, ddp::StateDict{ddp::named_tensors(net)});
    fs::create_symlink(file.filename(), link);
    if (::geteuid() == 0) {
        EXPECT_EQ(::chown(file.c_str(), 4321, 4321), 0);
    }
    Net loaded = zeros();
    ddp::load_state_dict(loaded, ddp::read_state_dict(link));
    EXPECT_EQ(loaded.weight, net.weight);
    fs::remove_all(dir);
}

TEST(StateDict, TooLargeForMemoryIsACheckpointError) {
    std::string dir = (fs::temp_directory_path() / "ddp-state-XXXXXX").string();
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    const fs::path file = fs::path(dir) / "sparse.safetensors";
    std::ofstream(file) << "x";
    std::error_code refused;
    fs::resize_file(file, std::uintmax_t{8} << 40, refused);
    if (!refused) {
        try {
            ddp::read_state_dict(file);
            ADD_FAILURE() << "no error";
        } catch (const ddp::CheckpointError& error) {
            EXPECT_THAT(error.what(), HasSubstr("Cannot allocate memory"));
        }
    }
    fs::remove_all(dir);
}

TEST(StateDict, RoundTripsThroughASafetensorsFile) {
    std::string dir = (fs::temp_directory_path() / "ddp-state-XXXXXX").string();
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    const fs::path file = fs::path(dir) / "net.safetensors";
    Net net;
    std::ofstream(file.string() + ".tmp") << "what a killed write has left";
    write_state_dict(file, ddp::StateDict{ddp::named_tensors(net)});
    Net loaded = zeros();
    ddp::load_state_dict(loaded, ddp::read_state_dict(file));
    EXPECT_EQ(loaded.weight, net.weight);
    EXPECT_EQ(loaded.bias, net.bias);
    EXPECT_EQ(loaded.count, net.count);
    fs::resize_file(file, fs::file_size(file) - 1);
    try {
        ddp::read_state_dict(file);
        ADD_FAILURE() << "no error";
    } catch (const ddp::CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr(file.string() + " cannot be used"));
    }
    fs::remove_all(dir);
}

// What ddp::init_process_group does with the region of an agent.
TEST(StateDict, IsNotReplacedOnAHostWhoseLeaseHasEnded) {
    const auto agent = ddp::contract::ControlRegion::create(1);
    const int fd = ::fcntl(agent.fd(), F_DUPFD_CLOEXEC, 10);
    ASSERT_TRUE(ddp::contract::region_of_process(agent.handover(fd), 0)->shared());
    std::string folder = (fs::temp_directory_path() / "ddp-state-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const fs::path file = fs::path{folder} / "net";
    const auto written = [&] { return ddp::read_state_dict(file)["value"].view().as<float>()[0]; };
    const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    auto& lease = agent.header().lease_end_ns;
    float value = 0;
    for (const auto write : {&ddp::write_state_dict, &ddp::write_torch_state_dict}) {
        const auto write_next = [&] {
            value += 1;
            write(file, ddp::StateDict{{{"value", {&value, {}, ddp::DType::float32}}}});
        };
        lease = 0;
        write_next();
        EXPECT_EQ(written(), value);
        lease = (now + std::chrono::hours{1}).count();
        write_next();
        EXPECT_EQ(written(), value);
        lease = now.count();
        EXPECT_THROW(write_next(), ddp::CheckpointError);
        EXPECT_EQ(written(), value - 1);
    }
    lease = 0;  // for the process's other tests
    fs::remove_all(folder);
}
