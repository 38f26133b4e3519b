#include <ddp/error.hpp>
#include <ddp/scatter.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <numeric>
#include <string>

namespace ddp::data_parallel {

namespace {

// The same but for the rows.
bool fit_together(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape().dims() != b.shape().dims()) return false;
    const auto of_a = a.shape().extents();
    const auto of_b = b.shape().extents();
    return of_a.empty() || std::ranges::equal(of_a.subspan(1), of_b.subspan(1));
}

void require_that_they_fit(std::span<const Tensor> pieces) {
    if (pieces.empty()) throw UsageError("gather: there is nothing to join");
    const auto describe = [](const Tensor& tensor) {
        return to_string(tensor.shape()) + " " + to_string(tensor.dtype());
    };
    for (const Tensor& piece : pieces) {
        if (fit_together(piece, pieces.front())) continue;
        throw UsageError("gather: outputs " + describe(pieces.front()) + " and " + describe(piece) +
                         " of two replicas do not fit together; they may differ in the first "
                         "extent alone");
    }
}

Tensor cut_piece(const Tensor& tensor, std::int64_t first, std::int64_t rows) {
    if (rows == scalar) return tensor[first].view(Shape{});
    return tensor.narrow(0, {first, rows});
}

std::int64_t elements_of(std::int64_t rows) { return rows == scalar ? 1 : rows; }

void require_rows(const Tensor& tensor, std::span<const std::int64_t> rows) {
    std::int64_t all = 0;
    for (const std::int64_t part : rows) all += elements_of(part);
    if (tensor.shape().dims() > 0 && tensor.shape()[0] == all) return;
    throw UsageError("scatter: " + std::to_string(all) +
                     " rows are needed, one for each row of "
                     "the output, but the tensor's shape is " +
                     to_string(tensor.shape()));
}

}  // namespace

Rows chunk_rows(std::span<const Tensor> tensors, std::size_t devices) {
    if (devices == 0) throw UsageError("scatter: no device is given");
    for (const Tensor& tensor : tensors) {
        if (tensor.shape().dims() == 0) {
            throw UsageError(
                "scatter: a tensor without dimensions has no rows to cut; pass its "
                "value as a number (item), which each replica then gets");
        }
        if (tensor.shape()[0] != tensors.front().shape()[0]) {
            throw UsageError("scatter: inputs of shapes " + to_string(tensors.front().shape()) +
                             " and " + to_string(tensor.shape()) +
                             " are not cut alike: they need the same number of rows");
        }
    }
    std::vector<std::int64_t> rows;
    for (const Tensor& piece : tensors.front().chunk(static_cast<std::int64_t>(devices))) {
        rows.push_back(piece.shape()[0]);
    }
    if (tensors.front().shape()[0] == 0) rows.resize(1);  // chunk gives empty pieces for all
    return Rows(tensors.size(), rows);
}

Rows rows_of(std::span<const std::vector<Tensor>> parts) {
    require_equal_sizes(parts);
    Rows rows(parts.empty() ? 0 : parts.front().size());
    for (const auto& tensors : parts) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const Shape& shape = tensors[t].shape();
            rows[t].push_back(shape.dims() == 0 ? scalar : shape[0]);
        }
    }
    return rows;
}

void require_equal_sizes(std::span<const std::vector<Tensor>> parts) {
    for (const auto& part : parts) {
        if (part.size() == parts.front().size()) continue;
        throw UsageError("gather: replicas returned " + std::to_string(parts.front().size()) +
                         " and " + std::to_string(part.size()) + " tensors; they need as many");
    }
}

void require_tensors(const Rows& output) {
    if (!output.empty()) return;
    throw UsageError(
        "DataParallel: backward needs an output, but the last forward returned no tensor; for "
        "losses as numbers call forward_loss, and after it backward_loss");
}

std::vector<std::vector<Tensor>> cut(std::span<const Tensor> tensors, const Rows& rows,
                                     std::span<const Device> devices) {
    if (tensors.size() != rows.size()) {
        throw UsageError("scatter: " + std::to_string(rows.size()) +
                         " tensors are needed, one for each of the output, not " +
                         std::to_string(tensors.size()));
    }
    std::vector<std::vector<Tensor>> pieces(rows.empty() ? 0 : rows.front().size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        require_rows(tensors[t], rows[t]);
        std::int64_t first = 0;
        for (std::size_t d = 0; d < pieces.size(); ++d) {
            pieces[d].push_back(cut_piece(tensors[t], first, rows[t][d]).to(devices[d]));
            first += elements_of(rows[t][d]);
        }
    }
    return pieces;
}

Tensor join(std::span<const Tensor> pieces, const Device& device) {
    require_that_they_fit(pieces);
    const Tensor& front = pieces.front();
    const bool scalars = front.shape().dims() == 0;
    if (pieces.size() == 1) return (scalars ? front.view({1}) : front).to(device);
    std::vector<std::int64_t> extents(front.shape().extents().begin(),
                                      front.shape().extents().end());
    if (scalars) extents.push_back(1);
    extents.front() = 0;
    for (const Tensor& piece : pieces) extents.front() += scalars ? 1 : piece.shape()[0];
    Tensor joined = empty(Shape(extents), {.device = device, .dtype = front.dtype()});
    std::int64_t first = 0;
    for (const Tensor& piece : pieces) {
        const Tensor whole = scalars ? piece.view({1}) : piece;
        const std::int64_t rows = whole.shape()[0];
        copy_elements(whole, joined.narrow(0, {first, rows}));
        first += rows;
    }
    return joined;
}

}  // namespace ddp::data_parallel
