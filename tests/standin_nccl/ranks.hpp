// Ranks of a communicator of the stand-in NCCL, as threads of the test, each with its device.
#pragma once

#include "standin_nccl/stand_in.h"
#include "support/host_device_api.hpp"

#include <ddp/half.hpp>

#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace ddp::testing {

template <class T>
inline constexpr ncclDataType_t nccl_type = ncclNumTypes;
template <>
inline constexpr ncclDataType_t nccl_type<float> = ncclFloat32;
template <>
inline constexpr ncclDataType_t nccl_type<double> = ncclFloat64;
template <>
inline constexpr ncclDataType_t nccl_type<float16> = ncclFloat16;
template <>
inline constexpr ncclDataType_t nccl_type<bfloat16> = ncclBfloat16;
template <>
inline constexpr ncclDataType_t nccl_type<std::int8_t> = ncclInt8;
template <>
inline constexpr ncclDataType_t nccl_type<std::uint8_t> = ncclUint8;
template <>
inline constexpr ncclDataType_t nccl_type<std::int32_t> = ncclInt32;
template <>
inline constexpr ncclDataType_t nccl_type<std::int64_t> = ncclInt64;

inline constexpr int misuse_code = 97;  // with which misuse ends the process

// A knob, for as long as it lives.
class Knob {
public:
    Knob(const char* name, const std::string& value) : name_(name) {
        ddp_stand_in_set(name, value.c_str());
    }
    ~Knob() { ddp_stand_in_set(name_, nullptr); }
    Knob(const Knob&) = delete;
    Knob& operator=(const Knob&) = delete;

private:
    const char* name_;
};

// A rank's device, stream and communicator, on the thread that made it.
class NcclRank {
public:
    NcclRank(HostDeviceApi& api, int device) : api_(api) {
        api.use(device);
        stream = api.make_stream(device::Priority::high);
    }
    ~NcclRank() {
        for (void* const memory : memory_) api_.free(memory);
        api_.destroy_stream(stream);
    }
    NcclRank(const NcclRank&) = delete;
    NcclRank& operator=(const NcclRank&) = delete;

    void init(int ranks_, int rank_, const ncclUniqueId& id) {
        ranks = ranks_;
        rank = rank_;
        ASSERT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclSuccess)
            << ncclGetLastError(nullptr);
    }
    ncclResult_t init_without_blocking(int ranks_, int rank_, const ncclUniqueId& id) {
        ranks = ranks_;
        rank = rank_;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        return ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    }
    ncclResult_t state() const {
        ncclResult_t result = ncclInternalError;
        EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
        return result;
    }
    // The first state that `stop` accepts; the last one after 20 s.
    ncclResult_t state_when(const std::function<bool(ncclResult_t)>& stop) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        ncclResult_t result = state();
        while (!stop(result) && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
            result = state();
        }
        return result;
    }
    ncclResult_t settled() const {
        return state_when([](ncclResult_t result) { return result != ncclInProgress; });
    }

    // What came of a call: of one that does not block, when it is done.
    ncclResult_t result_of(ncclResult_t called) const {
        return called == ncclInProgress ? settled() : called;
    }

    template <class T>
    T* memory(std::size_t count) {
        memory_.push_back(api_.allocate(count * sizeof(T)));
        return static_cast<T*>(memory_.back());
    }
    template <class T>
    T* holding(const std::vector<T>& values) {
        T* const place = memory<T>(values.size());
        api_.copy(place, values.data(), values.size() * sizeof(T), stream);
        return place;
    }
    template <class T>
    std::vector<T> read(const T* place, std::size_t count) {  // once the stream's work is done
        std::vector<T> values(count);
        api_.copy(values.data(), place, count * sizeof(T), stream);
        return values;
    }
    HostDeviceApi& api() { return api_; }

    int ranks = 1;
    int rank = 0;
    CUstream_st* stream = nullptr;
    ncclComm_t comm = nullptr;

private:
    HostDeviceApi& api_;
    std::vector<void*> memory_;
};

inline ncclUniqueId make_id() {
    ncclUniqueId id{};
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return id;
}

// Runs body on that many threads.
inline void on_devices(int ranks, const std::function<void(NcclRank&, int rank)>& body) {
    HostDeviceApi api(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            NcclRank own(api, rank);
            body(own, rank);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// The same with a blocking communicator, destroyed in the end.
inline void on_ranks(int ranks, const std::function<void(NcclRank&)>& body) {
    const ncclUniqueId id = make_id();
    on_devices(ranks, [&](NcclRank& own, int rank) {
        own.init(ranks, rank, id);
        if (own.comm == nullptr) return;
        body(own);
        own.api().synchronize(own.stream);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

}  // namespace ddp::testing
