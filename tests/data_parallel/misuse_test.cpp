// What goes wrong in modules, in replicas and in how they are used: each is named, with its cure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddp/data_parallel.hpp>
#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data_parallel/cpu_devices.hpp"
#include "data_parallel/linear_model.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// What it does, and what replicate returns, is the test's.
class Scripted {
public:
    explicit Scripted(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const Tensor& value = tensors_[i];
            parameters_.push_back({"p" + std::to_string(i), value, value});
        }
    }
    std::span<Parameter> parameters() { return parameters_; }
    std::vector<NamedTensor> buffers() { return buffers_; }
    Scripted replicate(const Device& device) { return Scripted{copies(device)}.with(body); }
    Tensor forward(const Tensor& x) const {
        body(x);
        return x;
    }

    void backward(const Tensor&) {}

    std::function<void(const Tensor&)> body = [](const Tensor&) {};
    std::function<std::vector<Tensor>(const Device&)> copies = [this](const Device& device) {
        std::vector<Tensor> there;
        for (const Tensor& one : tensors_) there.push_back(empty_like(one, {.device = device}));
        return there;
    };
    std::vector<NamedTensor> buffers_;

private:
    Scripted&& with(const std::function<void(const Tensor&)>& other) && {
        body = other;
        return std::move(*this);
    }
    std::vector<Tensor> tensors_;
    std::vector<Parameter> parameters_;
};

Tensor on(int device, const Shape& shape = {2}) { return zeros(shape, {.device = cpu(device)}); }

class DataParallelMisuse : public ::testing::Test {
protected:
    // The UsageError of wrapping it and running one batch.
    static void use(Scripted& module, const DataParallelOptions& options = {}) {
        ddp::DataParallel model{module, options};
        model.forward(zeros({8, 1}));
    }
    CpuDevices cpus_{3};
};

// A module whose output is a number, or a list that holds nothing.
template <class Output>
class WithoutTensors {
public:
    std::span<Parameter> parameters() { return {}; }
    WithoutTensors replicate(const Device&) const { return {}; }
    Output forward(const Tensor&) const { return {}; }
    void backward() const { FAIL() << "there is nothing to go back from"; }
};

template <class Output>
void expect_no_way_back() {
    WithoutTensors<Output> module;
    ddp::DataParallel model{module};
    model.forward(zeros({6, 1}));
    EXPECT_THAT([&] { model.backward(); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("the last forward returned no tensor"),
                          HasSubstr("call forward_loss, and after it backward_loss"))));
}

}  // namespace

TEST_F(DataParallelMisuse, NamesAParameterThatIsElsewhere) {
    Scripted module{{on(0), on(2)}};
    EXPECT_THAT([&] { use(module); },
                ThrowsMessage<UsageError>(AllOf(
                    HasSubstr("has to be on cpu (device_ids[0]), but its parameter 'p1' is on "
                              "cpu:2"),
                    HasSubstr("make the module on cpu"))));
    Scripted elsewhere{{on(0)}};
    EXPECT_THAT(
        [&] {
            use(elsewhere, {.device_ids = {1, 2}});
        },
        ThrowsMessage<UsageError>(HasSubstr("has to be on cpu:1 (device_ids[0])")));
}

TEST_F(DataParallelMisuse, NamesABufferThatIsElsewhere) {
    Scripted module{{on(0)}};
    const Tensor mean = on(1);
    module.buffers_ = {{"bn.mean", mean}};
    EXPECT_THAT([&] { use(module); },
                ThrowsMessage<UsageError>(HasSubstr("its buffer 'bn.mean' is on cpu:1")));
}

TEST_F(DataParallelMisuse, FindsAModuleThatMovedAfterItWasWrapped) {
    Scripted module{{on(0)}};
    ddp::DataParallel model{module};
    const Tensor moved = on(1);
    module.parameters()[0].value = moved;
    EXPECT_THAT(
        [&] {
            model.forward(zeros({3, 1}));
        },
        ThrowsMessage<UsageError>(HasSubstr("'p0' is on cpu:1")));
}

TEST_F(DataParallelMisuse, NamesWhatReplicateDidWrong) {
    Scripted elsewhere{{on(0)}};
    elsewhere.copies = [](const Device&) { return std::vector{on(0)}; };
    EXPECT_THAT([&] { use(elsewhere); },
                ThrowsMessage<UsageError>(HasSubstr("replicate(cpu:1) returned a module that is "
                                                    "not there: its parameter 'p0' is on cpu")));
    Scripted fewer{{on(0), on(0)}};
    fewer.copies = [](const Device& device) { return std::vector{on(device.index)}; };
    EXPECT_THAT([&] { use(fewer); },
                ThrowsMessage<UsageError>(HasSubstr("has 2 parameters, its replica 1")));
    Scripted other{{on(0)}};
    other.copies = [](const Device& device) { return std::vector{on(device.index, {3})}; };
    EXPECT_THAT([&] { use(other); },
                ThrowsMessage<UsageError>(HasSubstr("'p0' [2] float32 where its replica has 'p0' "
                                                    "[3] float32")));
    const Tensor shared = on(0);
    Scripted same{{shared}};
    same.copies = [&](const Device& device) {
        return std::vector{Tensor({shared.data(), {2}, DType::float32, device}, {})};
    };
    EXPECT_THAT([&] { use(same); },
                ThrowsMessage<UsageError>(HasSubstr("is the module's own memory")));
}

TEST_F(DataParallelMisuse, NamesDevicesThatThereAreNot) {
    Scripted module{{on(0)}};
    EXPECT_THAT(
        [&] {
            use(module, {.device_ids = {0, 3}});
        },
        ThrowsMessage<UsageError>(
            AllOf(HasSubstr("device_ids has 3"), HasSubstr("0 to 2: cpu, cpu:1, cpu:2"))));
    EXPECT_THAT([&] { use(module, {.device_ids = {-1}}); },
                ThrowsMessage<UsageError>(HasSubstr("device_ids has -1")));
    EXPECT_THAT(
        [&] {
            use(module, {.device_ids = {0, 1, 0}});
        },
        ThrowsMessage<UsageError>(HasSubstr("device_ids has 0 twice")));
    EXPECT_THAT([&] { use(module, {.output_device = 7}); },
                ThrowsMessage<UsageError>(HasSubstr("output_device has 7")));
}

TEST_F(DataParallelMisuse, NamesAParameterThatOnlyAReplicaFreezes) {
    struct FreezesReplicas {
        std::span<Parameter> parameters() { return parameters_; }
        FreezesReplicas replicate(const Device& device) const {
            const Tensor there = on(device.index);
            return {there, {{"fc.bias", there, {}}}};
        }
        Tensor forward(const Tensor& x) const { return x; }
        void backward(const Tensor&) const {}
        Tensor value_ = on(0);
        std::vector<Parameter> parameters_{{"fc.bias", value_, value_}};
    };
    FreezesReplicas module;
    ddp::DataParallel model{module};
    model.forward(zeros({6, 1}));
    EXPECT_THAT(
        [&] {
            model.backward(zeros({6, 1}));
        },
        ThrowsMessage<UsageError>(HasSubstr("'fc.bias' [2] float32 of a replica has no gradient")));
}

TEST_F(DataParallelMisuse, RefusesGradientsThatAreNotTheOutputs) {
    LinearModel module{5, 2, cpu(0)};
    ddp::DataParallel model{module};
    model.forward(zeros({30, 5}));
    EXPECT_THAT(
        [&] {
            model.backward(zeros({29, 2}));
        },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("30 rows are needed"), HasSubstr("[29, 2]"))));
}

TEST_F(DataParallelMisuse, HasNothingToGoBackFromWithoutATensorInTheOutput) {
    expect_no_way_back<double>();
    expect_no_way_back<std::vector<Tensor>>();
}

TEST_F(DataParallelMisuse, NamesTheReplicaThatFailedAndGoesOnAfterwards) {
    Scripted module{{on(0)}};
    module.body = [](const Tensor& x) {
        if (x.device() == cpu(1) && x.shape()[0] == 2) throw std::out_of_range("row 7");
    };
    ddp::DataParallel model{module};
    EXPECT_THAT(
        [&] {
            model.forward(zeros({6, 1}));
        },
        ThrowsMessage<std::out_of_range>("replica 1 on cpu:1: row 7"));
    EXPECT_EQ(model.forward(zeros({9, 1})).shape(), (Shape{9, 1}));
}

TEST_F(DataParallelMisuse, HasNothingToGoBackThroughAfterAFailure) {
    Scripted module{{on(0)}};
    module.body = [](const Tensor& x) {
        if (x.shape()[0] == 3) throw UsageError("three rows");
    };
    ddp::DataParallel model{module};
    model.forward(zeros({6, 1}));
    EXPECT_THROW(model.forward(zeros({9, 1})), UsageError);
    EXPECT_THAT(
        [&] {
            model.backward(zeros({6, 1}));
        },
        ThrowsMessage<UsageError>(HasSubstr("backward without a forward")));
}
