// SyncBatchNorm beside torch's own batch norm in one process, which has the batches of all ranks
// concatenated; and putting it in the place of batch norms.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "support/seed.hpp"
#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::convert_sync_batchnorm;
using libtorch::DistributedDataParallel;
using libtorch::SyncBatchNorm;
using libtorch::SyncBatchNormImpl;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNorm3d;
using torch::nn::BatchNormOptions;

template <class Impl>
bool is(const torch::nn::Module& module) {
    return dynamic_cast<const Impl*>(&module) != nullptr;
}

// The same on all ranks.
class Random {
public:
    explicit Random(ProcessGroup& group)
        : engine_(static_cast<std::uint32_t>(group.all_reduce(
              group.rank() == 0 ? static_cast<std::int64_t>(store_test::random_seed()) : 0))) {}
    std::int64_t below(std::int64_t count) { return static_cast<std::int64_t>(engine_()) % count; }
    bool once_in(std::int64_t count) { return below(count) == 0; }
    torch::Tensor numbers(const std::vector<std::int64_t>& sizes) {
        torch::manual_seed(engine_());
        return torch::randn(sizes, torch::kFloat64);
    }

private:
    std::mt19937 engine_;
};

// In parts of the largest expected number, or of `least` if that is more.
double difference(const torch::Tensor& actual, const torch::Tensor& expected, double least = 0) {
    if (actual.sizes() != expected.sizes()) return INFINITY;
    if (expected.numel() == 0) return 0;
    const auto a = actual.detach().to(torch::kFloat64);
    const auto b = expected.detach().to(torch::kFloat64);
    const auto most = (a - b).abs().max().item<double>();
    if (most == 0) return 0;
    return std::isnan(most) ? INFINITY : most / std::max(least, b.abs().max().item<double>());
}

torch::Tensor sum_over_ranks(const torch::Tensor& tensor, ProcessGroup& group) {
    const auto sum = tensor.detach().clone();
    libtorch::all_reduce(group, sum);
    return sum;
}

// Of [samples, ...], rank r's samples[r] rows.
torch::Tensor part_of(const torch::Tensor& whole, const std::vector<std::int64_t>& samples,
                      int rank) {
    std::int64_t first = 0;
    for (int r = 0; r < rank; ++r) first += samples[static_cast<std::size_t>(r)];
    return whole.narrow(0, first, samples[static_cast<std::size_t>(rank)]);
}

std::vector<std::int64_t> uneven_samples(Random& random, int ranks) {
    std::vector<std::int64_t> samples;
    for (int rank = 0; rank < ranks; ++rank) {
        samples.push_back(random.once_in(4) ? 0 : random.below(7));
    }
    samples.back() += 2;
    std::rotate(samples.begin(), samples.begin() + random.below(ranks), samples.end());
    return samples;
}

struct Case {
    std::vector<std::int64_t> samples;  // by rank
    std::vector<std::int64_t> sizes;    // of the whole batch
    BatchNormOptions options{1};
    torch::ScalarType type = torch::kFloat64;
    bool channels_last = false;
    double offset = 0;
    double scale = 1;
};

Case random_case(Random& random, int ranks) {
    Case made;
    made.samples = uneven_samples(random, ranks);
    std::int64_t samples = 0;
    for (const std::int64_t part : made.samples) samples += part;
    made.sizes = {samples, 1 + random.below(6)};
    for (std::int64_t extra = random.below(4); extra > 0; --extra) {
        made.sizes.push_back(1 + random.below(5));
    }
    made.options = BatchNormOptions(made.sizes[1])
                       .eps(random.once_in(2) ? 1e-5 : 1e-3)
                       .affine(!random.once_in(3))
                       .track_running_stats(!random.once_in(3));
    if (random.once_in(3)) {
        made.options.momentum(std::decay_t<decltype(made.options.momentum())>());
    } else {
        made.options.momentum(0.1 + 0.1 * static_cast<double>(random.below(5)));
    }
    made.channels_last = made.sizes.size() == 4 && random.once_in(2);
    return made;
}

// Torch's batch norm for inputs of any number of dimensions.
class WholeBatch {
public:
    explicit WholeBatch(const Case& made)
        : flat_(made.options),
          square_(made.options),
          cube_(made.options),
          dims_(made.sizes.size()) {
        module()->to(made.type);
    }
    std::shared_ptr<torch::nn::Module> module() const {
        return dims_ < 4    ? std::shared_ptr<torch::nn::Module>(flat_.ptr())
               : dims_ == 4 ? std::shared_ptr<torch::nn::Module>(square_.ptr())
                            : cube_.ptr();
    }
    torch::Tensor forward(const torch::Tensor& x) {
        return dims_ < 4 ? flat_(x) : dims_ == 4 ? square_(x) : cube_(x);
    }

private:
    BatchNorm1d flat_;
    BatchNorm2d square_;
    BatchNorm3d cube_;
    std::size_t dims_;
};

// How large the parts are of which the gradient of an input is the sum: of few samples hardly
// anything is left.
double parts_of_gradient(const torch::Tensor& x, const torch::Tensor& gradient,
                         const torch::nn::Module& norm, double eps) {
    const auto by_channel = x.detach().to(torch::kFloat64).transpose(0, 1).flatten(1);
    const auto inverse_std = (by_channel.var(1, /*unbiased=*/false) + eps).rsqrt().max();
    double weight = 1;
    for (const torch::Tensor& value : norm.parameters()) {
        weight = std::max(weight, value.detach().abs().max().item<double>());
    }
    return inverse_std.item<double>() * gradient.abs().max().item<double>() * weight;
}

struct Pass {
    torch::Tensor output;
    torch::Tensor of_input;  // gradient
};
Pass run(auto&& forward, const torch::Tensor& x, const torch::Tensor& gradient) {
    const auto input = x.detach().clone().set_requires_grad(true);
    const auto output = forward(input);
    (output * gradient).sum().backward();
    return {output, input.grad()};
}

// Two steps and an evaluation. `tolerance`: in parts of the largest number.
void compare_with_one_process(const Case& made, Random& random, double tolerance,
                              ProcessGroup& group) {
    WholeBatch whole(made);
    const auto module = whole.module();
    for (torch::Tensor& value : module->parameters()) {
        const torch::NoGradGuard no_grad;
        value.copy_(random.numbers({made.sizes[1]}));
    }
    SyncBatchNorm mine(made.options, group);
    mine->to(made.type);
    for (const auto& named : module->named_parameters()) {
        const torch::NoGradGuard no_grad;
        if (named.value().defined()) mine->named_parameters()[named.key()].copy_(named.value());
    }
    const auto with = [&](const torch::Tensor& numbers) {
        const auto typed = numbers.to(made.type);
        return made.channels_last ? typed.contiguous(torch::MemoryFormat::ChannelsLast) : typed;
    };
    double largest_gradient = 0;
    for (int step = 0; step < 3; ++step) {
        if (step == 2) {
            module->eval();
            mine->eval();
        }
        // Evaluation without running statistics is by each rank's own batch, as in PyTorch.
        if (step == 2 && !made.options.track_running_stats()) break;
        const auto x = with(random.numbers(made.sizes) * made.scale + made.offset);
        const auto gradient = with(random.numbers(made.sizes));
        largest_gradient = std::max(largest_gradient, gradient.abs().max().item<double>());
        const auto of_all =
            run([&](const auto& input) { return whole.forward(input); }, x, gradient);
        const auto here = [&](const auto& tensor) {
            return part_of(tensor, made.samples, group.rank());
        };
        const auto of_mine =
            run([&](const auto& input) { return mine(input); }, here(x), here(gradient));
        EXPECT_EQ(of_mine.output.scalar_type(), made.type);
        EXPECT_LT(difference(of_mine.output, here(of_all.output)), tolerance) << "step " << step;
        const double parts = parts_of_gradient(x, gradient, *module, made.options.eps());
        EXPECT_LT(difference(of_mine.of_input, here(of_all.of_input), parts), tolerance);
    }
    for (const auto& named : module->named_parameters()) {
        if (!named.value().defined()) continue;
        const auto sum = sum_over_ranks(mine->named_parameters()[named.key()].grad(), group);
        // A sum of parts of that size, of which hardly anything may be left.
        EXPECT_LT(difference(sum, named.value().grad(), largest_gradient), 10 * tolerance)
            << named.key();
    }
    for (const auto& named : module->named_buffers()) {
        if (!named.value().defined()) continue;
        const auto buffer = mine->named_buffers()[named.key()];
        EXPECT_EQ(buffer.scalar_type(), named.value().scalar_type());
        EXPECT_LT(difference(buffer, named.value()), tolerance) << named.key();
        EXPECT_TRUE(same_bits_on_all_ranks(group, buffer)) << named.key();
    }
}

std::string describe(const Case& made) {
    std::ostringstream text;
    text << torch::IntArrayRef(made.sizes) << " of which the ranks have "
         << torch::IntArrayRef(made.samples);
    return text.str();
}

TEST(TorchSyncBatchNorm, IsTheBatchNormOfOneProcessForRandomShapes) {
    auto group = join_group();
    Random random(group);
    for (int i = 0; i < 100; ++i) {
        Case made = random_case(random, group.size());
        SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(made));
        compare_with_one_process(made, random, 1e-9, group);
        made.type = torch::kFloat32;
        made.options.eps(1e-3);  // or two values as good as equal, and their rounding, decide
        compare_with_one_process(made, random, 2e-4, group);
    }
}

TEST(TorchSyncBatchNorm, KeepsAVarianceThatIsSmallBesideTheMean) {
    auto group = join_group();
    Random random(group);
    for (int i = 0; i < 10; ++i) {
        Case made = random_case(random, group.size());
        made.offset = i % 2 == 0 ? 1e6 : -1e6;
        made.scale = 0.1;
        SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(made));
        compare_with_one_process(made, random, 1e-6, group);
    }
}

TEST(TorchSyncBatchNorm, HasStatisticsOfHalfTypesInFloat32) {
    auto group = join_group();
    Random random(group);
    for (const auto type : {torch::kBFloat16, torch::kFloat16}) {
        BatchNorm1d whole(3);
        SyncBatchNorm mine(3, group);
        const auto x = random.numbers({4 * group.size(), 3}).to(type);
        const auto gradient = random.numbers({4 * group.size(), 3}).to(type);
        const std::vector<std::int64_t> samples(static_cast<std::size_t>(group.size()), 4);
        // In the world of one it is torch that does it, as far as it does.
        if (group.size() == 1) continue;
        const auto of_all = run([&](const auto& input) { return whole(input); },
                                x.to(torch::kFloat32), gradient.to(torch::kFloat32));
        const auto of_mine =
            run([&](const auto& input) { return mine(input); }, part_of(x, samples, group.rank()),
                part_of(gradient, samples, group.rank()));
        EXPECT_EQ(of_mine.output.scalar_type(), type);
        EXPECT_LT(difference(of_mine.output, part_of(of_all.output, samples, group.rank())), 0.01);
        EXPECT_LT(difference(of_mine.of_input, part_of(of_all.of_input, samples, group.rank())),
                  0.01);
        EXPECT_LT(difference(mine->running_mean, whole->running_mean), 1e-5);
        EXPECT_LT(difference(mine->running_var, whole->running_var), 1e-5);
    }
}

TEST(TorchSyncBatchNorm, InAWorldOfOneIsTorchsBitForBit) {
    auto group = join_group();
    if (group.size() > 1) return;
    BatchNorm2d whole(4);
    SyncBatchNorm mine(4, group);
    const auto x = torch::randn({5, 4, 3, 3});
    EXPECT_TRUE(torch::equal(mine(x), whole(x)));
    EXPECT_TRUE(torch::equal(mine->running_var, whole->running_var));
    EXPECT_EQ(mine->num_batches_tracked.item<std::int64_t>(), 1);
}

torch::nn::Sequential make_net() {
    torch::manual_seed(11);
    torch::nn::Sequential net(
        torch::nn::Conv2d(2, 4, 3), BatchNorm2d(4), torch::nn::ReLU(), torch::nn::Conv2d(4, 3, 2),
        BatchNorm2d(BatchNormOptions(3).momentum(0.3)), torch::nn::Flatten(),
        torch::nn::Linear(12, 5), BatchNorm1d(BatchNormOptions(5).affine(false)));
    net->to(torch::kFloat64);
    return net;
}

TEST(TorchSyncBatchNorm, TrainsInDistributedDataParallelAsOneProcessDoes) {
    auto group = join_group();
    Random random(group);
    for (const double bucket_mb : {25.0, 1e-5}) {
        auto alone = make_net();
        auto net = make_net();
        convert_sync_batchnorm(net, group);
        DistributedDataParallel model{
            net, group, {.reducer = {.bucket_cap_mb = bucket_mb, .first_bucket_mb = bucket_mb}}};
        torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
        torch::optim::SGD optimizer_alone(alone->parameters(), torch::optim::SGDOptions(0.1));
        for (int step = 0; step < 5; ++step) {
            const auto samples = uneven_samples(random, group.size());
            std::int64_t all = 0;
            for (const std::int64_t part : samples) all += part;
            const auto x = random.numbers({all, 2, 5, 5});
            const auto target = random.numbers({all, 5});
            optimizer_alone.zero_grad();
            (alone->forward(x) - target).square().sum().div(all).backward();
            optimizer_alone.step();

            optimizer.zero_grad();
            const auto output = model(part_of(x, samples, group.rank()));
            const auto wanted = part_of(target, samples, group.rank());
            (output - wanted).square().sum().mul(group.size()).div(all).backward();
            const auto gradients = gradients_of(*net);
            const auto expected = gradients_of(*alone);
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                // What comes before a batch norm shifts all values alike: no gradient but rounding.
                const double most = std::max(1e-3, expected[i].abs().max().item<double>());
                EXPECT_LT((gradients[i] - expected[i]).abs().max().item<double>(), 1e-7 * most)
                    << net->named_parameters().keys()[i] << ", step " << step;
            }
            optimizer.step();
        }
        for (const auto& named : alone->named_buffers()) {
            EXPECT_LT(difference(net->named_buffers()[named.key()], named.value()), 1e-7);
        }
    }
}

TEST(TorchSyncBatchNorm, EvaluatesWithoutTheOthers) {
    auto group = join_group();
    SyncBatchNorm mine(4, group);
    BatchNorm1d own(4);
    mine->eval();
    own->eval();
    if (group.rank() != 0) return;
    const auto x = torch::randn({3, 4});
    EXPECT_TRUE(torch::equal(mine(x), own(x)));
}

TEST(TorchSyncBatchNorm, IsRefusedWhereLogicalRanksTakeTurns) {
    auto group = join_group();
    const auto size = static_cast<std::size_t>(group.size());
    for (const std::size_t turns : {std::size_t{1}, std::size_t{2}}) {
        torch::nn::Sequential net(torch::nn::Linear(5, 4), SyncBatchNorm(4, group));
        DistributedDataParallel model{net, group, {.reducer = {.logical_ranks = turns * size}}};
        const auto forward = [&] { model(rows(6 * group.rank(), 6)); };
        const std::string error = error_of<UsageError>(forward);
        EXPECT_THAT(error, turns == 1 ? HasSubstr("no error") : HasSubstr("logical ranks"));
        EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(),
                  turns == 1 ? 1 : 0);
        net->eval();
        EXPECT_EQ(error_of<UsageError>(forward), "no error");
    }
}

TEST(TorchSyncBatchNorm, RefusesOtherChannelsAndSingleValues) {
    auto group = join_group();
    SyncBatchNorm three(3, group);
    EXPECT_THAT(error_of<UsageError>([&] {
                    three(torch::ones({2, 4}));
                }),
                HasSubstr("SyncBatchNorm of 3 channels got Float [2, 4]"));
    EXPECT_THAT(error_of<UsageError>([&] { three(torch::ones({3})); }), HasSubstr("got Float [3]"));
    if (group.size() == 1) return;
    EXPECT_THAT(error_of<UsageError>([&] {
                    three(torch::ones({group.rank() == 0 ? 1 : 0, 3}));
                }),
                HasSubstr("one value a channel, over all ranks"));
    EXPECT_EQ(three->num_batches_tracked.item<std::int64_t>(), 0);
    const int channels = group.rank() == 1 ? 5 : 4;
    SyncBatchNorm of_another_size(channels, group);
    EXPECT_THAT(
        error_of<UsageError>([&] {
            of_another_size(torch::ones({2, channels}));
        }),
        AllOf(HasSubstr("of 4 channels"), HasSubstr("of 5 channels"), HasSubstr("rank 1 called")));
}

TEST(TorchSyncBatchNorm, TakesBatchesThatAreEmptyOnAllRanks) {
    auto group = join_group();
    SyncBatchNorm norm(3, group);
    const auto x = torch::ones({0, 3}).set_requires_grad(true);
    const auto y = norm(x);
    EXPECT_EQ(y.size(0), 0);
    y.sum().backward();
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::zeros({3})));
    EXPECT_TRUE(torch::equal(norm->weight.grad(), torch::zeros({3})));
}

TEST(TorchSyncBatchNorm, RefusesASecondDerivative) {
    auto group = join_group();
    if (group.size() == 1) return;
    SyncBatchNorm norm(3, group);
    const auto x = torch::randn({4, 3}).set_requires_grad(true);
    const auto slope = torch::autograd::grad({norm(x).square().sum()}, {x}, {},
                                             /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_THAT(error_of<UsageError>([&] { slope.square().sum().backward(); }),
                HasSubstr("no second derivative"));
}

TEST(TorchSyncBatchNormConversion, KeepsNamesTensorsOptionsAndMode) {
    auto group = join_group();
    auto net = make_net();
    net->eval();
    const auto values = net->named_parameters();
    const auto buffers = net->named_buffers();
    EXPECT_EQ(convert_sync_batchnorm(net, group).get(), net.get());
    EXPECT_EQ(net->named_parameters().keys(), values.keys());
    EXPECT_EQ(net->named_buffers().keys(), buffers.keys());
    for (const auto& named : values) {
        EXPECT_TRUE(named.value().is_same(net->named_parameters()[named.key()])) << named.key();
    }
    for (const auto& named : buffers) {
        EXPECT_EQ(named.value().data_ptr(), net->named_buffers()[named.key()].data_ptr());
        EXPECT_EQ(named.value().dtype(), net->named_buffers()[named.key()].dtype());
    }
    const auto second = net->ptr<SyncBatchNormImpl>(4);
    EXPECT_FALSE(second->is_training());
    EXPECT_EQ(second->options.momentum().value(), 0.3);
    EXPECT_EQ(second->group(), &group);
    EXPECT_EQ(net->named_children()["4"].get(), second.get());
    EXPECT_EQ(net->ptr<SyncBatchNormImpl>(7)->weight.defined(), false);
    std::ostringstream text;
    text << *net;
    EXPECT_THAT(text.str(), HasSubstr("ddp::libtorch::SyncBatchNorm(3, eps=1e-05, momentum=0.3, "
                                      "affine=true, track_running_stats=true)"));
    const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(second->clone());
    EXPECT_EQ(copy->group(), &group);
    EXPECT_FALSE(copy->weight.is_same(second->weight));
    // Again: nothing is left to replace.
    convert_sync_batchnorm(*net, group);
    EXPECT_EQ(net->ptr<SyncBatchNormImpl>(4), second);
}

TEST(TorchSyncBatchNormConversion, ReturnsWhatReplacesABatchNormItself) {
    auto group = join_group();
    BatchNorm3d norm(3);
    const auto made = convert_sync_batchnorm(norm, group);
    ASSERT_TRUE(is<SyncBatchNormImpl>(*made));
    EXPECT_TRUE(made->parameters()[0].is_same(norm->weight));
}

struct BlockImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
    torch::nn::Sequential layers = register_module("layers", torch::nn::Sequential(BatchNorm1d(4)));
};
TORCH_MODULE(Block);

struct ListsImpl : torch::nn::Module {
    torch::nn::ModuleList list = register_module("list", torch::nn::ModuleList(BatchNorm1d(2)));
    torch::nn::ModuleDict dict = register_module("dict", torch::nn::ModuleDict());
    torch::nn::Sequential deep = register_module("deep", torch::nn::Sequential(Block()));
    SyncBatchNorm own = register_module("own", SyncBatchNorm(5));
};
TORCH_MODULE(Lists);

TEST(TorchSyncBatchNormConversion, ReachesIntoContainersAndGivesGroups) {
    auto group = join_group();
    Lists net;
    const BatchNorm1d twice(3);  // this handle calls nothing
    net->dict->update({{"first", twice.ptr()}, {"second", twice.ptr()}});
    EXPECT_EQ(net->own->group(), nullptr);
    convert_sync_batchnorm(net, group);
    EXPECT_NE(net->list->ptr<SyncBatchNormImpl>(0), nullptr);
    const auto first = (*net->dict)["first"];
    EXPECT_TRUE(is<SyncBatchNormImpl>(*first));
    EXPECT_EQ((*net->dict)["second"], first);
    EXPECT_EQ(net->own->group(), &group);
    for (const auto& module : net->modules()) {
        EXPECT_FALSE(is<torch::nn::BatchNorm1dImpl>(*module));
    }
    const auto output = net->deep->forward(torch::randn({4, 4}));
    EXPECT_EQ(output.grad_fn()->name().find("BatchNormOfRanks") != std::string::npos,
              group.size() > 1);
}

struct MemberImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return norm(good->forward(x)); }
    torch::nn::Sequential good = register_module("good", torch::nn::Sequential(BatchNorm1d(2)));
    BatchNorm1d norm = register_module("norm", BatchNorm1d(2));
};
TORCH_MODULE(Member);

TEST(TorchSyncBatchNormConversion, RefusesWhatAMemberWouldGoOnCalling) {
    auto group = join_group();
    torch::nn::Sequential net{Member()};
    EXPECT_THAT(error_of<UsageError>([&] { convert_sync_batchnorm(net, group); }),
                AllOf(HasSubstr("cannot replace 0.norm"), HasSubstr("MemberImpl"),
                      HasSubstr("declare that as ddp::libtorch::SyncBatchNorm")));
    EXPECT_TRUE(is<torch::nn::BatchNorm1dImpl>(*net->at<MemberImpl>(0).good->ptr(0)));
    // Nothing but the list of submodules has this one.
    torch::nn::Module bare("bare");
    bare.register_module("norm", BatchNorm1d(2));
    convert_sync_batchnorm(bare, group);
    EXPECT_TRUE(is<SyncBatchNormImpl>(*bare.named_children()["norm"]));
}

struct SharedImpl : torch::nn::Module {
    explicit SharedImpl(const std::shared_ptr<torch::nn::Module>& block) {
        register_module("first", block);
        register_module("second", block);
    }
};

TEST(TorchSyncBatchNormConversion, CountsAParentThatHasSeveralPlacesOnce) {
    auto group = join_group();
    SharedImpl of_members(Member().ptr());
    EXPECT_THAT(error_of<UsageError>([&] { convert_sync_batchnorm(of_members, group); }),
                HasSubstr("cannot replace first.norm"));
    SharedImpl of_lists(Block().ptr());
    convert_sync_batchnorm(of_lists, group);
    for (const auto& module : of_lists.modules(false)) {
        EXPECT_FALSE(is<torch::nn::BatchNorm1dImpl>(*module));
    }
}

// Its buffers have two names each.
TEST(TorchSyncBatchNormConversion, ANormWithTwoNamesIsWrappedAsOne) {
    auto group = join_group();
    auto net = std::make_shared<SharedImpl>(Block().ptr());
    convert_sync_batchnorm(*net, group);
    EXPECT_EQ(net->named_buffers().size(), 6U);
    torch::Tensor mean = net->buffers()[0];
    mean.fill_(group.rank() + 1);
    const DistributedDataParallel model(net, group);
    EXPECT_EQ(mean[0].item<float>(), 1);
}

}  // namespace
