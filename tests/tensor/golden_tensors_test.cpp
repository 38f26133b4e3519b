// Against what PyTorch gave: pieces of chunk, the numbers of randn and printed values, from the
// file that make_golden_tensors.py has made.
#include <ddp/tensor_functions.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace ddp;

DType dtype_named(const std::string& name) {
    static const std::vector<DType> all{DType::float32, DType::float64, DType::int32, DType::int64,
                                        DType::uint8,   DType::float16, DType::int8,  DType::int16,
                                        DType::boolean, DType::bfloat16};
    for (const DType dtype : all) {
        if (name == to_string(dtype)) return dtype;
    }
    ADD_FAILURE() << "no dtype " << name;
    return DType::float32;
}

// "2,3"; "-" is a scalar's.
Shape shape_of(const std::string& text) {
    if (text == "-") return Shape{};
    std::vector<std::int64_t> extents;
    std::istringstream in{text};
    for (std::string word; std::getline(in, word, ',');) extents.push_back(std::stoll(word));
    return Shape{std::span<const std::int64_t>(extents)};
}

std::vector<double> numbers_in(std::istream& in) {
    std::vector<double> numbers;
    for (std::string word; in >> word;) numbers.push_back(std::stod(word));
    return numbers;
}

struct Record {
    std::istringstream words;  // after the first one
    std::string text;          // of the lines below it that begin with |
};

// Calls `check` for each record of this kind; gives their number.
int for_each_record(const std::string& kind, const std::function<void(Record&)>& check) {
    std::ifstream file(DDP_GOLDEN_TENSORS);
    int count = 0;
    std::string line;
    std::getline(file, line);
    while (file) {
        std::istringstream words{line};
        std::string first;
        words >> first;
        const std::string head = line;
        std::string text;
        while (std::getline(file, line) && line.starts_with("| ")) {
            text += (text.empty() ? "" : "\n") + line.substr(2);
        }
        if (first != kind) continue;
        SCOPED_TRACE(head.substr(0, 100));
        Record record{std::move(words), std::move(text)};
        check(record);
        ++count;
    }
    return count;
}

TEST(GoldenTensors, AreCutIntoPyTorchsPieces) {
    const int count = for_each_record("chunk", [](Record& record) {
        std::int64_t n = 0;
        std::int64_t k = 0;
        std::size_t pieces = 0;
        std::int64_t first = 0;
        std::int64_t last = 0;
        record.words >> n >> k >> pieces >> first >> last;
        const auto made = zeros({n}, {.dtype = DType::uint8}).chunk(k);
        ASSERT_EQ(made.size(), pieces);
        for (std::size_t i = 0; i + 1 < pieces; ++i) ASSERT_EQ(made[i].size(0), first);
        EXPECT_EQ(made.back().size(0), last);
    });
    EXPECT_GE(count, 1000);
}

// torch's kernels compute logarithm, sine and cosine of float32 in float32: their errors are a few
// units in the last place of the largest factor, and so may be large beside a small product.
TEST(GoldenTensors, HoldPyTorchsNormalNumbers) {
    const int count = for_each_record("randn", [](Record& record) {
        std::string dtype;
        std::uint64_t seed = 0;
        std::int64_t n = 0;
        record.words >> dtype >> seed >> n;
        const std::vector<double> golden = numbers_in(record.words);
        const Tensor made = randn({n}, seed, {.dtype = dtype_named(dtype)});
        const Tensor wide = made.to(DType::float64);
        ASSERT_EQ(golden.size(), made.numel());
        const double rounding = dtype == "float32" ? std::numeric_limits<float>::epsilon()
                                                   : std::numeric_limits<double>::epsilon();
        for (std::size_t i = 0; i < golden.size(); ++i) {
            EXPECT_NEAR(wide.as<double>()[i], golden[i], 8 * rounding) << "value " << i;
        }
    });
    EXPECT_EQ(count, 56);
}

TEST(GoldenTensors, PrintAsPyTorchDoes) {
    const int count = for_each_record("print", [](Record& record) {
        std::string dtype;
        std::string shape_text;
        std::string kind;
        record.words >> dtype >> shape_text >> kind;
        const Shape shape = shape_of(shape_text);
        std::vector<double> values = numbers_in(record.words);
        if (kind == "ramp") {
            const double start = values.at(0);
            const double step = values.at(1);
            values.resize(shape.numel());
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = start + step * static_cast<double>(i);
            }
        }
        const Tensor made = tensor(values, shape, {.dtype = dtype_named(dtype)});
        EXPECT_EQ(to_string(made), record.text);
    });
    EXPECT_GT(count, 100);
}

}  // namespace
