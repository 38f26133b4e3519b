// A non-owning handle of a CUDA stream, so that headers that order work on streams need no CUDA.
// Default-constructed it is CUDA's legacy default stream; work in CPU memory ignores it.
#pragma once

struct CUstream_st;  // what cudaStream_t points to

namespace ddp {

class Stream {
public:
    constexpr Stream() = default;
    constexpr Stream(CUstream_st* handle) : handle_(handle) {}  // NOLINT: implicit by design
    constexpr CUstream_st* handle() const { return handle_; }   // a cudaStream_t

private:
    CUstream_st* handle_ = nullptr;
};

}  // namespace ddp
