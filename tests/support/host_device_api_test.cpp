#include "support/host_device_api.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using ddp::BackendError;
using ddp::Device;
using ddp::DeviceType;
using ddp::DType;
using ddp::TensorView;
using ddp::device::PackItem;
using ddp::device::Priority;
using ddp::testing::HostDeviceApi;

// Work on a stream that lasts until it is let go.
class Gate {
public:
    explicit Gate(CUstream_st* stream) {
        stream->enqueue(
            stream, [](void* gate) { static_cast<std::promise<void>*>(gate)->get_future().wait(); },
            &open_);
    }
    void open() { open_.set_value(); }

private:
    std::promise<void> open_;
};

template <class T>
T* on_device(HostDeviceApi& api, const std::vector<T>& values) {
    auto* const memory = static_cast<T*>(api.allocate(values.size() * sizeof(T)));
    api.copy(memory, values.data(), values.size() * sizeof(T), {});
    return memory;
}

template <class T>
std::vector<T> read(HostDeviceApi& api, const T* memory, std::size_t count) {
    std::vector<T> values(count);
    api.copy(values.data(), memory, count * sizeof(T), {});
    return values;
}

TensorView view(void* data, std::int64_t count, DType dtype) { return {data, {count}, dtype}; }

TEST(HostDeviceApi, ProbesAsItIsTold) {
    HostDeviceApi api(2);
    EXPECT_EQ(api.probe().devices, 2);
    EXPECT_EQ(api.probe().reason, "");
    api.set_reason("no driver");
    EXPECT_EQ(api.probe().devices, 0);
    EXPECT_EQ(api.probe().reason, "no driver");
    EXPECT_THROW(api.use(0), BackendError);
    EXPECT_THROW(api.allocate(1), BackendError);
}

TEST(HostDeviceApi, EachThreadHasItsCurrentDevice) {
    HostDeviceApi api(3);
    EXPECT_EQ(api.current(), 0);
    api.use(2);
    EXPECT_EQ(std::async(std::launch::async, [&] { return api.current(); }).get(), 0);
    EXPECT_EQ(api.current(), 2);
    EXPECT_THROW(api.use(3), BackendError);
    EXPECT_EQ(ddp_find_host_driver()->current_device(), 2);
}

TEST(HostDeviceApi, KnowsWhoseMemoryItIs) {
    HostDeviceApi api(2);
    api.use(1);
    auto* const memory = static_cast<std::byte*>(api.allocate(1000));
    void* const pinned = api.allocate_pinned(10);
    int ordinary = 0;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
    EXPECT_EQ(api.device_of(memory + 999), (Device{DeviceType::cuda, 1}));
    EXPECT_EQ(api.device_of(pinned), Device{});
    EXPECT_EQ(api.device_of(&ordinary), Device{});
    EXPECT_TRUE(api.owns(1, memory, 1000));
    EXPECT_FALSE(api.owns(1, memory, 1001));
    EXPECT_FALSE(api.owns(0, memory, 1));
    api.set_memory(1500);
    EXPECT_THROW(api.allocate(501), ddp::SystemError);
    EXPECT_EQ(api.allocated(), 1010U);
    api.free(memory);
    api.free_pinned(pinned);
    EXPECT_EQ(api.allocated(), 0U);
}

TEST(HostDeviceApi, AStreamRunsInOrderAndAnEventMarksAMomentOfIt) {
    HostDeviceApi api(1);
    CUstream_st* const stream = api.make_stream(Priority::high);
    CUstream_st* const consumer = api.make_stream(Priority::normal);
    CUevent_st* const event = api.make_event();
    EXPECT_TRUE(api.is_done(event));
    float* const values = on_device<float>(api, {1, 2, 3});
    float* const seen = on_device<float>(api, {0, 0, 0});

    Gate gate(stream);
    api.scale(view(values, 3, DType::float32), 10, stream);
    api.record(event, stream);
    api.wait(consumer, event);
    api.copy(seen, values, 12, consumer);
    EXPECT_FALSE(api.is_done(stream));
    EXPECT_FALSE(api.is_done(consumer));
    EXPECT_FALSE(api.is_done(event));
    EXPECT_TRUE(api.is_done(ddp::Stream{}));  // the default stream orders nothing else
    gate.open();
    api.synchronize(consumer);
    EXPECT_TRUE(api.is_done(event));
    EXPECT_EQ(read(api, seen, 3), (std::vector<float>{10, 20, 30}));
    api.destroy_event(event);
    api.destroy_stream(stream);
    api.destroy_stream(consumer);
    EXPECT_THROW(api.is_done(stream), BackendError);
    EXPECT_THROW(api.is_done(event), BackendError);
}

TEST(HostDeviceApi, ADestroyedStreamEndsItsWorkAndFreeWaitsForIt) {
    HostDeviceApi api(1);
    CUstream_st* const stream = api.make_stream(Priority::normal);
    float* const values = on_device<float>(api, {1, 2});
    Gate gate(stream);
    api.scale(view(values, 2, DType::float32), 2, stream);
    api.destroy_stream(stream);
    auto freed = std::async(std::launch::async, [&] { api.free(values); });
    EXPECT_EQ(freed.wait_for(std::chrono::milliseconds{20}), std::future_status::timeout);
    gate.open();
    freed.get();
    EXPECT_EQ(api.allocated(), 0U);
}

TEST(HostDeviceApi, KernelsReachOnlyTheirDevicesMemory) {
    HostDeviceApi api(2);
    float* const here = on_device<float>(api, {1, 2});
    api.use(1);
    float* const there = on_device<float>(api, {3, 4});
    CUstream_st* const stream = api.make_stream(Priority::normal);
    std::array<float, 2> ordinary{};
    EXPECT_THROW(api.scale(view(here, 2, DType::float32), 2, stream), BackendError);
    EXPECT_THROW(api.scale(ordinary, 2, stream), BackendError);
    EXPECT_THROW(api.scale(view(there, 3, DType::float32), 2, stream), BackendError);
    EXPECT_THROW(api.scale(view(there, 2, DType::int32), 2, stream), BackendError);
    EXPECT_THROW(api.copy(here, here + 1, 4, stream), BackendError);
    EXPECT_THROW(api.set_zero(here, 4, stream), BackendError);
    api.copy(here, there, 8, stream);  // between devices, as one of them does it
    api.synchronize(stream);
    EXPECT_EQ(read(api, there, 2), (std::vector<float>{3, 4}));
    CUevent_st* const event = api.make_event();
    api.use(0);
    EXPECT_THROW(api.record(event, {}), BackendError);
    EXPECT_EQ(read(api, here, 2), (std::vector<float>{3, 4}));
}

template <class T>
class HostKernels : public ::testing::Test {};
using Floats = ::testing::Types<float, double, ddp::float16, ddp::bfloat16>;
TYPED_TEST_SUITE(HostKernels, Floats);

TYPED_TEST(HostKernels, PackScalesAndUnpackDoesNot) {
    HostDeviceApi api(1);
    std::vector<TypeParam> first(5);
    std::vector<TypeParam> second(3);
    for (std::size_t i = 0; i < 5; ++i) first[i] = TypeParam(static_cast<float>(i));
    for (std::size_t i = 0; i < 3; ++i) second[i] = TypeParam(static_cast<float>(10 + i));
    TypeParam* const a = on_device(api, first);
    TypeParam* const b = on_device(api, second);
    auto* const packed = static_cast<TypeParam*>(api.allocate(10 * sizeof(TypeParam)));
    const TensorView all = view(packed, 10, ddp::dtype_of<TypeParam>());
    api.set_zero(packed, all.bytes(), {});
    const std::array items{PackItem{a, 5, 4}, PackItem{b, 3, 1}};
    api.pack(items, all, 0.5, {});
    const auto values = read(api, packed, 10);
    EXPECT_EQ(static_cast<float>(values[0]), 0);
    EXPECT_EQ(static_cast<float>(values[1]), 5);
    EXPECT_EQ(static_cast<float>(values[3]), 6);
    EXPECT_EQ(static_cast<float>(values[8]), 2);
    api.unpack(all, items, {});
    EXPECT_EQ(static_cast<float>(read(api, a, 5)[4]), 2);
    EXPECT_EQ(static_cast<float>(read(api, b, 3)[1]), 5.5F);
    EXPECT_THROW(api.pack(std::array{PackItem{a, 5, 6}}, all, 1, {}), BackendError);
}

TYPED_TEST(HostKernels, ConvertsAsCxxDoes) {
    HostDeviceApi api(1);
    const std::vector<float> values{1.5F, -2.25F, 100};
    float* const from = on_device(api, values);
    auto* const to = static_cast<TypeParam*>(api.allocate(3 * sizeof(TypeParam)));
    auto* const whole = static_cast<std::int32_t*>(api.allocate(12));
    const TensorView middle = view(to, 3, ddp::dtype_of<TypeParam>());
    api.convert(view(from, 3, DType::float32), middle, {});
    api.convert(middle, view(whole, 3, DType::int32), {});
    EXPECT_EQ(static_cast<float>(read(api, to, 3)[1]), -2.25F);
    EXPECT_EQ(read(api, whole, 3), (std::vector<std::int32_t>{1, -2, 100}));
}

TEST(HostDeviceApi, ThreadsUseTheirDevicesSideBySide) {
    HostDeviceApi api(4);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        ranks.emplace_back([&api, rank] {
            api.use(rank);
            CUstream_st* const stream = api.make_stream(Priority::high);
            float* const values = on_device<float>(api, std::vector<float>(100, 1));
            for (int i = 0; i < 20; ++i) api.scale(view(values, 100, DType::float32), 2, stream);
            api.synchronize(stream);
            EXPECT_EQ(read(api, values, 100), std::vector<float>(100, 1048576));
            api.free(values);
            api.destroy_stream(stream);
        });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(api.allocated(), 0U);
}

}  // namespace
