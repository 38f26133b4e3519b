// Models that differ between ranks: every rank gets the same error, with the parameter and both
// shapes.
#include "reducer/parameter_check.hpp"

#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ::testing::HasSubstr;

// Runs on three ranks; `change` makes this rank's model different.
void expect_error_on_every_rank(
    const std::string& part, const std::function<void(int rank, std::vector<Parameter>&)>& change,
    const std::function<ReducerOptions(int rank)>& options = {}) {
    run_ranks(3, [&](ProcessGroup& group) {
        ToyNet net({4, 6});
        std::vector<Parameter> parameters(net.parameters().begin(), net.parameters().end());
        change(group.rank(), parameters);
        try {
            Reducer reducer(parameters, group, options ? options(group.rank()) : ReducerOptions{});
            ADD_FAILURE() << "accepted";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr(part));
        }
    });
}

TEST(ParameterCheck, AcceptsEqualModels) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net({4, 6});
        EXPECT_NO_THROW(Reducer(net.parameters(), group));
    });
}

TEST(ParameterCheck, NamesTheParameterAndBothShapes) {
    expect_error_on_every_rank(
        "parameter 1: rank 0 has layer1 [6] float32 on cpu, rank 2 has layer1 [3, 2] float32 on "
        "cpu",
        [](int rank, std::vector<Parameter>& parameters) {
            if (rank == 2) parameters[1].value.shape = Shape{3, 2};
        });
}

TEST(ParameterCheck, NamesParametersInTheSameMemory) {
    expect_error_on_every_rank(
        "on rank 1, the value of layer0 and the value of layer1 are in the same memory",
        [](int rank, std::vector<Parameter>& parameters) {
            if (rank != 1) return;
            parameters[0].value = parameters[1].value.as<float>().subspan(2, 4);
        });
    expect_error_on_every_rank(
        "on rank 2, the gradient of layer0 and the gradient of layer1 are in the same memory",
        [](int rank, std::vector<Parameter>& parameters) {
            if (rank != 2) return;
            parameters[0].grad = parameters[1].grad.as<float>().subspan(2, 4);
        });
}

TEST(ParameterCheck, NamesAGradientInTheMemoryOfItsValue) {
    expect_error_on_every_rank(
        "on rank 0, the value of layer1 and the gradient of layer1 are in the same memory",
        [](int rank, std::vector<Parameter>& parameters) {
            if (rank == 0) parameters[1].grad = parameters[1].value;
        });
}

TEST(ParameterCheck, NamesWhatOneRankLacks) {
    expect_error_on_every_rank(
        "rank 0 has layer1 [6] float32 on cpu, rank 1 has none (rank 0 has 2 parameters, rank 1 "
        "has 1)",
        [](int rank, std::vector<Parameter>& parameters) {
            if (rank == 1) parameters.pop_back();
        });
}

TEST(ParameterCheck, NamesDifferentNamesAndDtypes) {
    expect_error_on_every_rank("rank 1 has other [4]",
                               [](int rank, std::vector<Parameter>& parameters) {
                                   if (rank == 1) parameters[0].name = "other";
                               });
    expect_error_on_every_rank("rank 2 has layer0 [4] int32 on cpu",
                               [](int rank, std::vector<Parameter>& parameters) {
                                   if (rank != 2) return;
                                   parameters[0].value.dtype = DType::int32;
                                   parameters[0].grad.dtype = DType::int32;
                               });
}

TEST(ParameterCheck, TellsAllRanksOfOneRanksOwnMistake) {
    expect_error_on_every_rank("on rank 1, the parameter name layer0 is used twice",
                               [](int rank, std::vector<Parameter>& parameters) {
                                   if (rank == 1) parameters[1].name = "layer0";
                               });
    expect_error_on_every_rank("on rank 2, the gradient of layer0 [4] float32 on cpu is [2]",
                               [](int rank, std::vector<Parameter>& parameters) {
                                   if (rank == 2) parameters[0].grad.shape = Shape{2};
                               });
    expect_error_on_every_rank("on rank 0, a parameter has no name",
                               [](int rank, std::vector<Parameter>& parameters) {
                                   if (rank == 0) parameters[0].name = "";
                               });
}

TEST(ParameterCheck, RefusesDifferentOrSenselessOptions) {
    const auto nothing = [](int, std::vector<Parameter>&) {};
    expect_error_on_every_rank("bucket_cap_mb 25", nothing, [](int rank) {
        return ReducerOptions{.bucket_cap_mb = rank == 1 ? 1.0 : 25.0};
    });
    expect_error_on_every_rank("must be greater than 0", nothing,
                               [](int) { return ReducerOptions{.bucket_cap_mb = 0}; });
}

}  // namespace
