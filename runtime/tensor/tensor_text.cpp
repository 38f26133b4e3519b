// The text of a tensor's values: the layout of torch/_tensor_str.py with its default options (four
// digits, lines of 80 columns, a summary above 1000 elements that shows three at each edge), which
// tests compare with what PyTorch prints.
#include <ddp/tensor_functions.hpp>

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>

namespace ddp {
namespace {

constexpr std::size_t summary_above = 1000;
constexpr std::int64_t edge = 3;
constexpr std::size_t line_width = 80;
constexpr const char* opening = "tensor(";
constexpr std::size_t indent_of_values = 7;  // as long as `opening`

bool is_cut(const Tensor& tensor, std::size_t dim) {
    return tensor.numel() > summary_above && tensor.shape()[dim] > 2 * edge;
}

// What is shown: both edges of each dimension that is cut. Of a large tensor on a GPU no more than
// that is moved.
Tensor shown_part(const Tensor& tensor) {
    Tensor part = tensor;
    for (std::size_t dim = 0; dim < tensor.shape().dims(); ++dim) {
        if (!is_cut(tensor, dim)) continue;
        const int at = static_cast<int>(dim);
        part = cat({part.narrow(at, {0, edge}), part.narrow(at, {-edge, edge})}, at);
    }
    return part;
}

// The elements, on the CPU: floating point as float64, anything else as int64.
struct Values {
    explicit Values(const Tensor& tensor)
        : real(is_floating_point(tensor.dtype())),
          elements(
              clone(tensor, {.device = Device{}, .dtype = real ? DType::float64 : DType::int64})) {}
    bool real;
    Tensor elements;
};

std::string printed(const char* format, double value) {
    std::array<char, 512> text{};  // the longest: -1.8e308 without an exponent
    const int length = std::snprintf(text.data(), text.size(), format, value);
    return {text.data(), static_cast<std::size_t>(length)};
}

// One form for all elements: whole numbers, four digits after the point, or an exponent.
class RealForm {
public:
    void see(double value) {
        if (!std::isfinite(value) || value == 0) return;
        const double size = std::abs(value);
        smallest_ = std::min(smallest_, size);
        largest_ = std::max(largest_, size);
        whole_ = whole_ && value == std::ceil(value);
    }
    std::string text(double value) const {
        if (std::isnan(value)) return "nan";
        if (largest_ == 0) return printed("%.0f", value) + (std::isfinite(value) ? "." : "");
        const bool wide = largest_ / smallest_ > 1000 || largest_ > 1e8;
        if (wide || (!whole_ && smallest_ < 1e-4)) return printed("%.4e", value);
        if (!whole_) return printed("%.4f", value);
        return printed("%.0f", value) + (std::isfinite(value) ? "." : "");
    }
    // Of what the column's width hangs on.
    static bool counts(double value) { return std::isfinite(value) && value != 0; }

private:
    double smallest_ = std::numeric_limits<double>::infinity();
    double largest_ = 0;
    bool whole_ = true;
};

class TensorText {
public:
    explicit TensorText(const Tensor& tensor)
        : boolean_(tensor.dtype() == DType::boolean), values_(shown_part(tensor)) {
        for (std::size_t dim = 0; dim < tensor.shape().dims(); ++dim) {
            cut_[dim] = is_cut(tensor, dim);
        }
        visit(0, 0, [&](std::size_t at) {
            if (values_.real) form_.see(real(at));
        });
        visit(0, 0, [&](std::size_t at) {
            if (!values_.real || RealForm::counts(real(at))) {
                width_ = std::max(width_, element(at).size());
            }
        });
    }

    std::string text() const { return text_of(0, 0, indent_of_values); }

private:
    double real(std::size_t at) const { return values_.elements.as<double>()[at]; }
    std::string element(std::size_t at) const {
        if (values_.real) return form_.text(real(at));
        const std::int64_t value = values_.elements.as<std::int64_t>()[at];
        if (boolean_) return value != 0 ? "True" : "False";
        return std::to_string(value);
    }
    std::string padded(std::size_t at) const {
        const std::string text = element(at);
        return std::string(width_ - std::min(width_, text.size()), ' ') + text;
    }
    const Shape& shape() const { return values_.elements.shape(); }
    std::size_t dims() const { return shape().dims(); }
    std::size_t stride(std::size_t dim) const {
        return Shape{shape().extents().subspan(dim + 1)}.numel();
    }

    // For each index of the dimension `one`, with where its elements begin; `gap` in the place of
    // those that are not shown.
    template <class One, class Gap>
    void for_shown(std::size_t dim, std::size_t begin, const One& one, const Gap& gap) const {
        for (std::int64_t i = 0; i < shape()[dim]; ++i) {
            if (cut_[dim] && i == edge) gap();
            one(begin + static_cast<std::size_t>(i) * stride(dim));
        }
    }
    template <class Visit>
    void visit(std::size_t dim, std::size_t begin, const Visit& each) const {
        if (dim == dims()) return each(begin);
        const auto go_on = [&](std::size_t at) { visit(dim + 1, at, each); };
        for_shown(dim, begin, go_on, [] {});
    }

    std::string text_of(std::size_t dim, std::size_t begin, std::size_t indent) const {
        if (dim == dims()) return padded(begin);
        if (dim + 1 == dims()) return row(dim, begin, indent);
        const std::string between =
            "," + std::string(dims() - dim - 1, '\n') + std::string(indent + 1, ' ');
        std::string text = "[";
        const auto add = [&](const std::string& part) {
            text += (text.size() == 1 ? "" : between) + part;
        };
        for_shown(
            dim, begin, [&](std::size_t at) { add(text_of(dim + 1, at, indent + 1)); },
            [&] { add("..."); });
        return text + "]";
    }

    // The last dimension: as many elements in a line as fit.
    std::string row(std::size_t dim, std::size_t begin, std::size_t indent) const {
        const std::size_t room = line_width > indent ? line_width - indent : 0;
        const std::size_t in_a_line = std::max<std::size_t>(1, room / (width_ + 2));
        std::string text = "[";
        std::size_t count = 0;
        const auto add = [&](const std::string& one) {
            const bool new_line = count > 0 && count % in_a_line == 0;
            if (count > 0) text += new_line ? ",\n" + std::string(indent + 1, ' ') : ", ";
            text += one;
            ++count;
        };
        for_shown(
            dim, begin, [&](std::size_t at) { add(padded(at)); }, [&] { add(" ..."); });
        return text + "]";
    }

    std::array<bool, Shape::max_dims> cut_{};
    bool boolean_;
    Values values_;
    RealForm form_;
    std::size_t width_ = 1;
};

// (2, 0)
std::string in_parentheses(const Shape& shape) {
    std::string text = to_string(shape);
    text.front() = '(';
    text.back() = ')';
    return text;
}

// What the values do not tell: device and dtype, and the shape of a tensor without any.
std::vector<std::string> remarks_of(const Tensor& tensor) {
    std::vector<std::string> remarks;
    if (tensor.device() != Device{}) {
        remarks.push_back("device='" + to_string(tensor.device()) + "'");
    }
    const bool empty = tensor.numel() == 0;
    if (empty && tensor.shape().dims() != 1) {
        remarks.push_back("size=" + in_parentheses(tensor.shape()));
    }
    const DType dtype = tensor.dtype();
    const bool shows = dtype == DType::int64 || dtype == DType::boolean;
    if (dtype != DType::float32 && (empty || !shows)) {
        remarks.push_back(std::string("dtype=") + to_string(dtype));
    }
    return remarks;
}

}  // namespace

std::string to_string(const Tensor& tensor) {
    std::string text = opening;
    text += tensor.numel() == 0 ? "[]" : TensorText(tensor).text();
    const std::size_t line_begin = text.rfind('\n');
    std::size_t column =
        line_begin == std::string::npos ? text.size() + 2 : text.size() - line_begin + 1;
    for (const std::string& remark : remarks_of(tensor)) {
        const bool new_line = column + remark.size() + 2 > line_width;
        text += new_line ? ",\n" + std::string(indent_of_values, ' ') : ", ";
        text += remark;
        column = (new_line ? indent_of_values : column + 2) + remark.size();
    }
    return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
    return out << to_string(tensor);
}

}  // namespace ddp
