// What every function of ddp.h does beside its purpose: exceptions become a status and the thread's
// last error, and what C passes becomes C++'s, or a UsageError that names the function.
#pragma once

#define DDP_NO_CALL_SITES  // the functions themselves are meant
#include <ddp/ddp.h>
#include <ddp/call_site.hpp>
#include <ddp/collective_options.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/tensor_view.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ddp::c_interface {

// For the exception that is being handled: makes it the last error.
ddp_status keep_error() noexcept;

// Calls `body` with the name of the function that it is.
template <class Body>
ddp_status guarded(const char* function, Body body) noexcept {
    try {
        body(function);
        return DDP_OK;
    } catch (...) {
        return keep_error();
    }
}

// The line that ddp_set_call_site has named; the next call has none.
CallSite take_call_site() noexcept;

// Throws UsageError: "FUNCTION: WHAT is NULL".
[[noreturn]] void refuse_null(const char* function, const char* what);
template <class T>
T& not_null(T* pointer, const char* function, const char* what) {
    if (pointer == nullptr) refuse_null(function, what);
    return *pointer;
}

// Throw UsageError for what no C program can mean.
TensorView view_of(const ddp_tensor& tensor, const char* function);
ReduceOp reduce_op_of(ddp_reduce_op op, const char* function);
std::vector<NamedTensor> named_tensors_of(const ddp_named_tensor* tensors, std::size_t count,
                                          const char* function);
template <class T>
std::span<T> span_of(T* first, std::size_t count, const char* function, const char* what) {
    if (first == nullptr && count > 0) refuse_null(function, what);
    return {first, count};
}

}  // namespace ddp::c_interface
