// What tools/bench/data.sh runs, one case a process:
//   ddp-data-speed sampler SAMPLES RANKS        the first shuffled epoch of rank 0: seconds until
//                                               its indices are there, and the KiB that memory grew
//   ddp-data-speed loader WORKERS EPOCHS FORM   shuffled epochs of 60,000 rows of 5 floats in
//                                               batches of 30: samples/s, and elements seen; FORM:
//                                               tensors (one a sample, stacked) or batches (copied
//                                               by the data set)
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

void measure_sampler(std::size_t samples, std::size_t ranks) {
    const long before = peak_kib();
    const auto start = std::chrono::steady_clock::now();
    const ddp::DistributedSampler sampler{samples, {0, ranks}};
    const std::vector<std::size_t>& indices = sampler.indices();
    const double seconds = seconds_since(start);
    const std::size_t largest = *std::ranges::max_element(indices);
    std::printf("%.6f %ld %zu %zu\n", seconds, peak_kib() - before, indices.size(), largest);
}

// A data set that makes whole batches. The other form is a vector of tensors [1, 5].
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
        if (words[3] == "tensors") return measure_loader(tensor.chunk(rows), workers, epochs);
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
