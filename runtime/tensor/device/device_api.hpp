// All that ddp asks of accelerators, behind one small table: memory, copies, streams, events and
// the few kernels of its own. CUDA's implementation and the one of builds without CUDA are a file
// each; tests bring one that runs on the host (tests/support), so that the code above runs where
// there is no GPU. What runs on a stream runs after what was put there before, as in CUDA.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

struct CUevent_st;  // what cudaEvent_t points to

namespace ddp::device {

// What this process sees. Without a device, or with a driver that cannot be used, `reason` says in
// one line what is in the way ("no driver", "the driver supports CUDA 12.2, this build needs
// 13.0"), and is empty otherwise.
struct Probe {
    int devices = 0;
    std::string reason;
};

enum class Priority { normal, high };

inline constexpr std::size_t most_added = 64;  // memories in one call of add()

// One tensor of many that are packed into one: its `elements` lie there from `offset` on.
struct PackItem {
    void* data = nullptr;
    std::size_t elements = 0;
    std::size_t offset = 0;  // in elements of the packed tensor
};

// Any thread. Calls concern the calling thread's current device (`use`) unless they name memory, or
// a stream of make_stream, which know theirs: the default stream is the memory's device's, and the
// current one's where there is no memory. They throw BackendError{"cuda"}, which names call, device
// and what CUDA says. Nothing here touches a driver before the first call other than `probe`.
class DeviceApi {
public:
    virtual ~DeviceApi() = default;

    virtual Probe probe() const noexcept = 0;  // asked anew each time; creates no context
    // "NVIDIA H100 80GB HBM3 (GPU-5c1a...)", and MIG-... for a slice: for messages, and to compare.
    virtual std::string describe(int device) = 0;
    virtual int architecture(int device) = 0;  // compute capability: 90 is 9.0
    // Why ddp's kernels cannot run there, in one line; empty: they can. Creates no context.
    virtual std::string why_unfit(int device) = 0;
    // Whether this process has a context there. It may have none on the current device: that is 0
    // on each new thread.
    virtual bool has_context(int device) = 0;
    virtual int current() = 0;
    virtual void use(int device) = 0;
    // Where the pointer's memory is: cuda:N, or the CPU for pinned and ordinary memory.
    virtual Device device_of(const void* pointer) = 0;

    // Copies between them need not pass the host from now on, where the hardware can do without.
    // Both have a context then.
    virtual void allow_peer_access(int device, int peer) = 0;

    // Aligned to 256 bytes; not zeroed. Throws SystemError(ENOMEM) when there is not enough.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void free(void* memory) noexcept = 0;
    virtual void* allocate_pinned(std::size_t bytes) = 0;  // of the host
    virtual void free_pinned(void* memory) noexcept = 0;
    // Between any two places, by their addresses. Asynchronous for the host unless ordinary host
    // memory takes part.
    virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
    virtual void set_zero(void* memory, std::size_t bytes, Stream stream) = 0;

    virtual CUstream_st* make_stream(Priority priority) = 0;  // not ordered by the default stream
    virtual void destroy_stream(CUstream_st* stream) noexcept = 0;
    virtual bool is_done(Stream stream) = 0;  // all put there so far; never blocks
    virtual void synchronize(Stream stream) = 0;
    // What is put there goes into a graph, or, after what a capture forbids, nowhere.
    virtual bool is_captured(Stream stream) = 0;
    virtual void synchronize_device() = 0;  // all streams of the current device
    virtual CUevent_st* make_event() = 0;   // without timing
    virtual CUevent_st* make_timed_event() = 0;
    virtual void destroy_event(CUevent_st* event) noexcept = 0;
    virtual void record(CUevent_st* event, Stream stream) = 0;
    // True for one never recorded. Never blocks, and spoils no capture. Not of a captured stream's.
    virtual bool is_done(CUevent_st* event) = 0;
    virtual void wait(Stream stream, CUevent_st* event) = 0;  // the stream waits, not the host
    // Between the moments of two timed events, which have come; negative the other way round.
    virtual std::chrono::nanoseconds time_between(CUevent_st* first, CUevent_st* second) = 0;

    // On the current device. A kernel that is first needed later is loaded then, which may wait for
    // all that runs there.
    virtual void load_kernels() = 0;
    // Kernels: element-wise, on device memory of the stream's device, any alignment of the element.
    // Factors are for floating-point dtypes (16 bits are computed in float32 and rounded once), and
    // with a factor of 1 any dtype is copied bit by bit.
    // values *= factor.
    virtual void scale(const TensorView& values, double factor, Stream stream) = 0;
    // packed[item.offset + i] = item.data[i] * factor: all items in as few launches as fit; the
    // same dtype on both sides. And back, as they are.
    virtual void pack(std::span<const PackItem> items, const TensorView& packed, double factor,
                      Stream stream) = 0;
    virtual void unpack(const TensorView& packed, std::span<const PackItem> items,
                        Stream stream) = 0;
    // Likewise of items of float16 or bfloat16, `dtype`, in a packed float32: in float32 there,
    // times the factor, and rounded once on the way back.
    virtual void pack_widened(std::span<const PackItem> items, DType dtype,
                              const TensorView& packed, double factor, Stream stream) = 0;
    virtual void unpack_rounded(const TensorView& packed, std::span<const PackItem> items,
                                DType dtype, Stream stream) = 0;
    // to[i] = from[i] in the other dtype, as a C++ conversion does it; the same number of elements.
    virtual void convert(const TensorView& from, const TensorView& to, Stream stream) = 0;
    // sum[i] = memories[0][i] + memories[1][i] + ..., in the order of backends::reduce, 16 bits of
    // floating point in float32 and rounded once: 1 to most_added memories of the sum's dtype and
    // size, which may be one of them. Not of booleans.
    virtual void add(std::span<const void* const> memories, const TensorView& sum,
                     Stream stream) = 0;
};

// The one that a build brings along: device_api_cuda.cpp defines it, or device_api_absent.cpp,
// which has no device and says why.
DeviceApi& built_in_device_api();

// This process's: the built-in one, or a test's.
DeviceApi& device_api();
// For tests: from now on, until the next call; null: the built-in one.
void use_device_api(DeviceApi* api);

}  // namespace ddp::device
