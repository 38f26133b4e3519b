#include "c_interface/guard.hpp"

#include "contract/error_file.hpp"
#include "contract/exit_code.hpp"

#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/version.hpp>

#include <array>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <optional>

namespace ddp::c_interface {
namespace {

// Of this thread. The message lies in the exception, so that keeping one needs no memory.
struct LastError {
    std::exception_ptr exception;
    ddp_status status = DDP_OK;
    const char* message = "";
    std::optional<int> culprit;
};
thread_local LastError last_error;
thread_local CallSite next_call_site;

// Of all threads, the last with each status: a body returns the status alone, and may have cleaned
// up since, which failed, too.
class Failures {
public:
    void keep(ddp_status status, std::exception_ptr exception) noexcept {
        const std::lock_guard lock(mutex_);
        last_[static_cast<std::size_t>(status)] = std::move(exception);
    }
    std::exception_ptr find(ddp_status status) noexcept {
        const std::lock_guard lock(mutex_);
        const bool is_known = status > DDP_OK && status <= DDP_NO_MEMORY;
        return is_known ? last_[static_cast<std::size_t>(status)] : nullptr;
    }

private:
    std::mutex mutex_;
    std::array<std::exception_ptr, DDP_NO_MEMORY + 1> last_;
};

// Never destroyed: threads may outlive main.
Failures& failures() {
    static auto* const all = new Failures;
    return *all;
}

ddp_status status_of(const Error& error) noexcept {
    if (dynamic_cast<const UsageError*>(&error) != nullptr) return DDP_USAGE_ERROR;
    if (dynamic_cast<const SystemError*>(&error) != nullptr) return DDP_SYSTEM_ERROR;
    if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return DDP_TIMEOUT_ERROR;
    if (dynamic_cast<const PeerError*>(&error) != nullptr) return DDP_PEER_ERROR;
    if (dynamic_cast<const BackendError*>(&error) != nullptr) return DDP_BACKEND_ERROR;
    if (dynamic_cast<const CheckpointError*>(&error) != nullptr) return DDP_CHECKPOINT_ERROR;
    return DDP_ERROR;
}

void fail(const std::string& message) { throw UsageError(message); }

// Nothing: more than a number holds.
std::optional<std::size_t> elements_of(const Shape& shape) {
    std::size_t product = 1;
    for (const std::int64_t extent : shape.extents()) {
        if (__builtin_mul_overflow(product, static_cast<std::size_t>(extent), &product)) {
            return std::nullopt;
        }
    }
    return product;
}

}  // namespace

ddp_status keep_error() noexcept {
    LastError kept;
    kept.exception = std::current_exception();
    try {
        throw;
    } catch (const Error& error) {
        kept.status = status_of(error);
        kept.message = error.what();
        kept.culprit = error.culprit();
    } catch (const std::bad_alloc&) {
        kept.status = DDP_NO_MEMORY;
        kept.message = "there is not enough memory";
    } catch (const std::exception& error) {
        kept.status = DDP_ERROR;
        kept.message = error.what();
    } catch (...) {
        kept.status = DDP_ERROR;
        kept.message = "an exception of an unknown type";
    }
    failures().keep(kept.status, kept.exception);
    last_error = std::move(kept);
    return last_error.status;
}

CallSite take_call_site() noexcept { return std::exchange(next_call_site, CallSite{}); }

void refuse_null(const char* function, const char* what) {
    throw UsageError(std::string(function) + ": " + what + " is NULL");
}

TensorView view_of(const ddp_tensor& tensor, const char* function) {
    if (tensor.dtype < DDP_FLOAT32 || tensor.dtype > DDP_BOOL) {
        fail(std::string(function) + ": a tensor's dtype is " + std::to_string(tensor.dtype) +
             ", none of ddp_dtype's");
    }
    if (tensor.device < 0) {
        fail(std::string(function) + ": a tensor's device is " + std::to_string(tensor.device) +
             "; it is 0 for the CPU, n + 1 for the n-th GPU");
    }
    if (tensor.data == nullptr && tensor.count > 0) refuse_null(function, "a tensor's data");
    const auto dtype = static_cast<DType>(tensor.dtype);
    if (tensor.count > std::numeric_limits<std::ptrdiff_t>::max() / size_of(dtype)) {
        fail(std::string(function) + ": a tensor has " + std::to_string(tensor.count) +
             " elements, more than there is memory");
    }
    const Device device = tensor.device == 0
                              ? Device{}
                              : Device{.type = DeviceType::cuda, .index = tensor.device - 1};
    return {tensor.data, Shape{static_cast<std::int64_t>(tensor.count)}, dtype, device};
}

ReduceOp reduce_op_of(ddp_reduce_op op, const char* function) {
    if (op < DDP_SUM || op > DDP_BIT_XOR) {
        fail(std::string(function) + ": the operation is " + std::to_string(op) +
             ", none of ddp_reduce_op's");
    }
    return static_cast<ReduceOp::Kind>(op);
}

std::vector<NamedTensor> named_tensors_of(const ddp_named_tensor* tensors, std::size_t count,
                                          const char* function) {
    std::vector<NamedTensor> result;
    for (const ddp_named_tensor& one : span_of(tensors, count, function, "the list of tensors")) {
        const std::string name = &not_null(one.name, function, "a tensor's name");
        TensorView view = view_of(one.tensor, function);
        if (one.shape != nullptr || one.dims > 0) {
            view.shape = Shape(span_of(one.shape, one.dims, function, "a tensor's shape"));
        }
        if (elements_of(view.shape) != one.tensor.count) {
            fail(std::string(function) + ": tensor " + name + " has " +
                 std::to_string(one.tensor.count) + " elements, not those of its shape, " +
                 to_string(view.shape));
        }
        result.push_back({name, view});
    }
    return result;
}

static_assert(static_cast<int>(DType::boolean) == DDP_BOOL);
static_assert(static_cast<int>(DType::bfloat16) == DDP_BFLOAT16);
static_assert(static_cast<int>(DType::int16) == DDP_INT16);
static_assert(static_cast<int>(ReduceOp::avg) == DDP_AVG);
static_assert(static_cast<int>(ReduceOp::product) == DDP_PRODUCT);
static_assert(static_cast<int>(ReduceOp::bit_xor) == DDP_BIT_XOR);

}  // namespace ddp::c_interface

using namespace ddp::c_interface;

extern "C" {

const char* ddp_last_error(void) { return last_error.message; }

int ddp_last_error_rank(void) { return last_error.culprit.value_or(-1); }

const char* ddp_version(void) { return ddp::version(); }

void ddp_set_call_site(const char* file, std::uint32_t line) {
    next_call_site = file != nullptr ? ddp::CallSite{file, line} : ddp::CallSite{};
}

ddp_status ddp_fail(const char* message) {
    return guarded(__func__,
                   [&](const char*) { throw ddp::Error(message != nullptr ? message : ""); });
}

int ddp_report_failure(const char* message, int rank) {
    const auto culprit = rank >= 0 ? std::optional(rank) : std::nullopt;
    ddp::contract::ErrorReport report =
        ddp::contract::describe(std::make_exception_ptr(ddp::Error("", culprit)));
    report.message = message != nullptr ? message : "";
    ddp::contract::write_error_file(report);
    return report.peer ? ddp::contract::exit_because_of_peer : ddp::contract::exit_error;
}

int ddp_run_worker(ddp_status (*body)(void*), void* argument) {
    return ddp::run_worker([&] {
        if (body == nullptr) refuse_null("ddp_run_worker", "the body");
        const ddp_status status = body(argument);
        if (status == DDP_OK) return;
        if (status == last_error.status) std::rethrow_exception(last_error.exception);
        if (const std::exception_ptr failure = failures().find(status)) {
            std::rethrow_exception(failure);
        }
        throw ddp::Error("the worker's body has returned " + std::to_string(status));
    });
}

}  // extern "C"
