// The samplers and randperm against what real PyTorch gave: golden_shards.txt, written by
// make_golden_shards.py. Each line is one case; a wrong one is shown as it stands in the file.
#include <ddp/distributed_sampler.hpp>
#include <ddp/random_sampler.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/random_permutation.hpp"
#include "data/torch_generator.hpp"

namespace {

using Indices = std::vector<std::size_t>;

std::uint64_t digest(const Indices& indices) {
    std::uint64_t value = 0xCBF29CE484222325;
    for (const std::uint64_t index : indices) {
        for (int byte = 0; byte < 8; ++byte) {
            value = (value ^ ((index >> (8 * byte)) & 0xFF)) * 0x100000001B3;
        }
    }
    return value;
}

Indices ends_of(const Indices& indices) {
    Indices ends(indices.begin(), indices.begin() + 4);
    ends.insert(ends.end(), indices.end() - 4, indices.end());
    return ends;
}

Indices read_numbers(std::istream& in) {
    Indices numbers;
    for (std::size_t number = 0; in >> number;) numbers.push_back(number);
    return numbers;
}

constexpr std::array eras{ddp::RandpermEra::since_2025, ddp::RandpermEra::before_2025};

std::vector<ddp::RandpermEra> eras_named(const std::string& name) {
    if (name == "since_2025") return {ddp::RandpermEra::since_2025};
    if (name == "before_2025") return {ddp::RandpermEra::before_2025};
    EXPECT_EQ(name, "any");
    return {eras.begin(), eras.end()};
}

std::string rest_of(std::istream& in) {
    std::string rest;
    std::getline(in, rest);
    return rest;
}

// `in` stands behind the case's own fields: length, then the indices or their digest.
void expect_indices(std::istringstream in, const Indices& actual) {
    std::size_t length = 0;
    std::string form;
    ASSERT_TRUE(in >> length >> form);
    ASSERT_EQ(actual.size(), length);
    if (form == "all") {
        EXPECT_EQ(actual, read_numbers(in));
        return;
    }
    std::uint64_t expected = 0;
    std::string word;
    ASSERT_EQ(form, "digest");
    ASSERT_TRUE(in >> std::hex >> expected >> std::dec >> word);
    EXPECT_EQ(ends_of(actual), read_numbers(in));
    EXPECT_EQ(digest(actual), expected);
}

void check_shard(std::istream& in) {
    std::size_t n = 0;
    ddp::Shard shard;
    ddp::DistributedSamplerOptions options;
    std::int64_t epoch = 0;
    ASSERT_TRUE(in >> n >> shard.count >> shard.index >> options.seed >> epoch >> options.shuffle >>
                options.drop_last);
    options.allow_empty = true;
    ddp::DistributedSampler sampler{n, shard, options};
    sampler.set_epoch(epoch);
    EXPECT_EQ(sampler.size(), sampler.indices().size());
    expect_indices(std::istringstream{rest_of(in)}, sampler.indices());
}

void check_permutation(std::istream& in) {
    std::size_t n = 0;
    std::int64_t seed = 0;
    ASSERT_TRUE(in >> n >> seed);
    const std::string expected = rest_of(in);
    for (const ddp::RandpermEra era : eras) {
        expect_indices(std::istringstream{expected},
                       ddp::data::random_permutation(n, static_cast<std::uint64_t>(seed), era));
    }
}

void check_random(std::istream& in) {
    std::string era;
    std::size_t n = 0;
    ddp::RandomSamplerOptions options;
    ASSERT_TRUE(in >> era >> n >> options.seed >> options.replacement >> options.num_samples);
    const std::string expected = rest_of(in);
    for (const ddp::RandpermEra tried : eras_named(era)) {
        options.randperm = tried;
        const ddp::RandomSampler sampler{n, options};
        EXPECT_EQ(sampler.size(), sampler.indices().size());
        expect_indices(std::istringstream{expected}, sampler.indices());
    }
}

void check_places(std::istream& in) {
    std::string era;
    std::size_t n = 0;
    std::int64_t seed = 0;
    ddp::data::StridedSlice slice;
    ASSERT_TRUE(in >> era >> n >> seed >> slice.stride);
    slice.count = (n - 1) / slice.stride + 1;
    const std::string expected = rest_of(in);
    for (const ddp::RandpermEra tried : eras_named(era)) {
        ddp::data::TorchGenerator generator{static_cast<std::uint64_t>(seed)};
        expect_indices(std::istringstream{expected},
                       ddp::data::random_permutation(n, slice, generator, tried));
    }
}

// Runs `check` on each line of that kind; the number of them.
template <class Check>
int for_each_case(const std::string& wanted_kind, const Check& check) {
    std::ifstream file{DDP_GOLDEN_SHARDS};
    EXPECT_TRUE(file) << DDP_GOLDEN_SHARDS;
    int cases = 0;
    for (std::string line; std::getline(file, line);) {
        SCOPED_TRACE(line);
        std::istringstream in{line};
        std::string kind;
        in >> kind;
        if (kind != wanted_kind) continue;
        check(in);
        ++cases;
    }
    return cases;
}

}  // namespace

TEST(DistributedSampler, GivesTheShardsOfRealTorch) {
    EXPECT_GE(for_each_case("shard", check_shard), 140);
}

TEST(RandomSampler, GivesTheOrderOfRealTorchInBothEras) {
    EXPECT_GE(for_each_case("random", check_random), 22);
}

TEST(RandomPermutation, IsTorchsRandperm) {
    EXPECT_GE(for_each_case("randperm", check_permutation), 24);
}

// The eras differ in the second and third n. Takes 0.9 GiB.
TEST(RandomPermutation, SoakIsTorchsRandpermOfLargeNInBothEras) {
    EXPECT_EQ(for_each_case("places", check_places), 6);
}
