// Stands in for CUDA in a build without it: there is no device, all memory is the host's, and
// whatever else is asked is refused.
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <string>

namespace ddp::device {
namespace {

constexpr const char* reason = "ddp is built without CUDA";

[[noreturn]] void refuse(const std::string& call) {
    constexpr int no_device = 100;  // cudaErrorNoDevice
    throw BackendError("cuda", no_device,
                       call + ": " + reason +
                           " (nvcc or nccl.h was missing, or DDP_WITH_CUDA "
                           "was OFF)");
}

class AbsentDeviceApi final : public DeviceApi {
public:
    Probe probe() const noexcept override { return {.devices = 0, .reason = reason}; }
    std::string describe(int) override { refuse("describe"); }
    int architecture(int) override { refuse("architecture"); }
    std::string why_unfit(int) override { return reason; }
    bool has_context(int) override { return false; }
    int current() override { refuse("current"); }
    void use(int) override { refuse("use"); }
    Device device_of(const void*) override { return {}; }

    void allow_peer_access(int, int) override { refuse("allow_peer_access"); }
    void* allocate(std::size_t) override { refuse("allocate"); }
    void free(void*) noexcept override {}
    void* allocate_pinned(std::size_t) override { refuse("allocate_pinned"); }
    void free_pinned(void*) noexcept override {}
    void copy(void*, const void*, std::size_t, Stream) override { refuse("copy"); }
    void set_zero(void*, std::size_t, Stream) override { refuse("set_zero"); }

    CUstream_st* make_stream(Priority) override { refuse("make_stream"); }
    void destroy_stream(CUstream_st*) noexcept override {}
    bool is_done(Stream) override { refuse("is_done"); }
    void synchronize(Stream) override { refuse("synchronize"); }
    void synchronize_device() override { refuse("synchronize_device"); }
    CUevent_st* make_event() override { refuse("make_event"); }
    CUevent_st* make_timed_event() override { refuse("make_timed_event"); }
    std::chrono::nanoseconds time_between(CUevent_st*, CUevent_st*) override {
        refuse("time_between");
    }
    void destroy_event(CUevent_st*) noexcept override {}
    void record(CUevent_st*, Stream) override { refuse("record"); }
    bool is_done(CUevent_st*) override { refuse("is_done"); }
    void wait(Stream, CUevent_st*) override { refuse("wait"); }
    bool is_captured(Stream) override { refuse("is_captured"); }

    void load_kernels() override { refuse("load_kernels"); }
    void scale(const TensorView&, double, Stream) override { refuse("scale"); }
    void pack(std::span<const PackItem>, const TensorView&, double, Stream) override {
        refuse("pack");
    }
    void unpack(const TensorView&, std::span<const PackItem>, Stream) override { refuse("unpack"); }
    void pack_widened(std::span<const PackItem>, DType, const TensorView&, double,
                      Stream) override {
        refuse("pack_widened");
    }
    void unpack_rounded(const TensorView&, std::span<const PackItem>, DType, Stream) override {
        refuse("unpack_rounded");
    }
    void convert(const TensorView&, const TensorView&, Stream) override { refuse("convert"); }
    void add(std::span<const void* const>, const TensorView&, Stream) override { refuse("add"); }
};

}  // namespace

DeviceApi& built_in_device_api() {
    static AbsentDeviceApi absent;
    return absent;
}

}  // namespace ddp::device
