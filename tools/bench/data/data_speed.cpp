// What tools/bench/data.sh runs, one case a process:
//   ddp-data-speed sampler SAMPLES RANKS        the first shuffled epoch of rank 0: seconds until
//                                               its indices are there, the KiB that memory grew,
//                                               how many indices, and their digest
//   ddp-data-speed loader WORKERS EPOCHS FORM   shuffled epochs of 60,000 rows of 5 floats in
//                                               batches of 30: samples/s, and elements seen; FORM:
//                                               tensors (a row of one tensor a sample, stacked) or
//                                               batches (copied by the data set)
#include <ddp/data_loader.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr std::size_t columns = 5;
constexpr std::size_t batch_size = 30;
constexpr std::int64_t rows = 60'000;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

long peak_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == "VmHWM:") {
            long kib = 0;
            status >> kib;
            return kib;
        }
    }
    throw ddp::Error("/proc/self/status has no VmHWM");
}

// Of the numbers and their order: the sum of place * index modulo 2^64, places from 1 on.
std::uintmax_t digest_of(std::span<const std::size_t> indices) {
    std::uintmax_t digest = 0;
    std::uintmax_t place = 0;
    for (const std::size_t index : indices) digest += ++place * index;
    return digest;
}

void measure_sampler(std::size_t samples, std::size_t ranks) {
    const long before = peak_kib();
    const auto start = std::chrono::steady_clock::now();
    const ddp::DistributedSampler sampler{samples, {0, ranks}};
    const std::vector<std::size_t>& indices = sampler.indices();
    const double seconds = seconds_since(start);
    const long grown = peak_kib() - before;
    std::printf("%.6f %ld %zu %ju\n", seconds, grown, indices.size(), digest_of(indices));
}

// A data set of single samples: each a view of its row, as torch_data.py's.
class Samples {
public:
    explicit Samples(const ddp::Tensor& tensor) : rows_(tensor) {}
    std::size_t size() const { return static_cast<std::size_t>(rows_.size(0)); }
    ddp::Tensor operator[](std::size_t index) const { return rows_[index]; }

private:
    ddp::Tensor rows_;
};

// The same rows by the batch.
class Batches {
public:
    explicit Batches(const ddp::Tensor& tensor) : rows_(tensor) {}
    std::size_t size() const { return static_cast<std::size_t>(rows_.size(0)); }
    ddp::Tensor batch(std::span<const std::size_t> indices) const {
        auto batch = ddp::empty({static_cast<std::int64_t>(indices.size()), columns});
        const auto from = rows_.as<float>();
        auto to = batch.as<float>().begin();
        for (const std::size_t index : indices) {
            to = std::ranges::copy(from.subspan(index * columns, columns), to).out;
        }
        return batch;
    }

private:
    ddp::Tensor rows_;
};

template <class Data>
void measure_loader(const Data& dataset, std::size_t workers, int epochs) {
    ddp::DataLoader loader{dataset,
                           {.batch_size = batch_size, .shuffle = true, .workers = workers}};
    const auto start = std::chrono::steady_clock::now();
    std::size_t elements = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        loader.set_epoch(epoch);
        for (const ddp::Tensor& batch : loader) elements += batch.numel();
    }
    const double samples = static_cast<double>(elements) / columns;
    std::printf("%.0f %zu\n", samples / seconds_since(start), elements);
}

void run(const std::vector<std::string>& words) {
    if (words.size() == 3 && words[0] == "sampler") {
        return measure_sampler(std::stoull(words[1]), std::stoull(words[2]));
    }
    if (words.size() == 4 && words[0] == "loader") {
        const auto tensor = ddp::randn({rows, columns}, 1);
        const auto workers = std::stoull(words[1]);
        const int epochs = std::stoi(words[2]);
        if (words[3] == "tensors") return measure_loader(Samples{tensor}, workers, epochs);
        if (words[3] == "batches") return measure_loader(Batches{tensor}, workers, epochs);
    }
    throw ddp::UsageError("data-speed: what to measure? the source's head says");
}

}  // namespace

int main(int argc, char** argv) try {
    run({argv + 1, argv + argc});
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
}
