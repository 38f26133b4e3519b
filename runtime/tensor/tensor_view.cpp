#include <ddp/tensor_view.hpp>

#include <ddp/error.hpp>

namespace ddp {

void TensorView::require_dtype(DType wanted) const {
    if (dtype != wanted) {
        throw UsageError(std::string("tensor holds ") + to_string(dtype) + ", not " +
                         to_string(wanted));
    }
}

}  // namespace ddp
