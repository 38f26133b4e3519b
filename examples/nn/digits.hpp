// Digits: the example's data set, 8 x 8 images of handwritten digits (examples/data/README.md),
// read from a compressed text file. It models ddp::Dataset. Invariant: each sample has 64 pixels
// and a label 0 to 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace nn {

class Mlp;

class Digits {
public:
    static constexpr std::size_t pixels = 64;
    static constexpr const char* file_name = "digits.csv.gz";

    struct Batch {
        std::vector<float> images;  // [rows, 64], 0 to 1
        std::vector<std::int32_t> labels;
    };

    // Reads <dir>/digits.csv.gz. Throws ddp::UsageError that names the file, and the line that is
    // wrong.
    static Digits load(const std::filesystem::path& dir);
    // {the others, the samples whose index is a multiple of `n`}: to train and to test.
    std::pair<Digits, Digits> split_every(std::size_t n) const;

    std::size_t size() const { return samples_.labels.size(); }
    Batch batch(std::span<const std::size_t> indices) const;
    const Batch& all() const { return samples_; }

private:
    void add_line(std::string_view line);
    void add_sample(const Digits& from, std::size_t index);

    Batch samples_;
};

// The share of `test` that the net gets right.
double accuracy(Mlp& net, const Digits& test);

}  // namespace nn
