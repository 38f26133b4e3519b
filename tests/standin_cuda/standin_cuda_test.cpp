// The stand-in for the CUDA runtime: what it models of a card, by the functions that programs call.
#include "standin_cuda/stand_in.hpp"
#include "tensor/device/device_api.hpp"

#include <cuda_runtime_api.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ddp::standin_cuda {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StandInCuda : public ::testing::Test {
protected:
    void TearDown() override { start_anew(); }
};

// On a thread that knows no device yet.
template <class Call>
void on_a_fresh_thread(Call call) {
    std::thread(call).join();
}

TEST_F(StandInCuda, OpensAContextOnWhatAThreadUsesAndOnDeviceZeroOfAFreshOne) {
    set_devices(4);
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(cudaGetDeviceCount(&device), cudaSuccess);
    EXPECT_THAT(contexts(), IsEmpty());
    EXPECT_EQ(cudaSetDevice(3), cudaSuccess);
    EXPECT_THAT(contexts(), ElementsAre(3));
    on_a_fresh_thread([] {
        cudaEvent_t event = nullptr;
        EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    });
    EXPECT_THAT(contexts(), ElementsAre(0, 3));
}

TEST_F(StandInCuda, OrdersTheDefaultStreamWithBlockingOnesAlone) {
    int* memory = nullptr;
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), sizeof *memory), cudaSuccess);
    cudaStream_t blocking = nullptr, other = nullptr;
    ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    set_launch_delay(50ms);
    EXPECT_EQ(cudaMemsetAsync(memory, 1, sizeof *memory, blocking), cudaSuccess);
    set_launch_delay(0ms);
    EXPECT_EQ(cudaMemsetAsync(memory, 2, sizeof *memory, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(other), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(blocking), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    int value = 0;
    EXPECT_EQ(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(value, 0x02020202);
    EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(handles(), 0U);
    EXPECT_EQ(allocated(), 0U);
}

TEST_F(StandInCuda, KeepsTheErrorOfABrokenContext) {
    set_devices(2);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    break_device(1, cudaErrorIllegalAddress);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(StandInCuda, RefusesWhatIsNotThere) {
    set_devices(1);
    EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaLaunchKernel(&stream, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
    set_driver_version(12020);
    int count = -1;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    EXPECT_EQ(count, 0);
}

TEST_F(StandInCuda, CopiesBetweenDevicesByWayOfTheHostWithoutPeerAccess) {
    set_devices(2);
    std::vector<void*> memory(2);
    for (int device : {0, 1}) {
        ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&memory[static_cast<std::size_t>(device)], 8), cudaSuccess);
    }
    EXPECT_EQ(cudaMemcpy(memory[0], memory[1], 8, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(staged_copies(), 1U);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_EQ(cudaMemcpy(memory[0], memory[1], 8, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(staged_copies(), 1U);
    for (void* one : memory) EXPECT_EQ(cudaFree(one), cudaSuccess);
}

// Of ddp's device API: the default stream is that of the memory's device.
TEST_F(StandInCuda, ZeroesInTheOrderOfTheMemorysDevice) {
    device::DeviceApi& api = device::built_in_device_api();
    set_devices(2);
    api.use(1);
    int* const memory = static_cast<int*>(api.allocate(2 * sizeof(int)));
    api.set_zero(memory, 2 * sizeof(int), {});
    api.synchronize({});
    memory[0] = 7;
    api.use(0);
    set_launch_delay(50ms);
    api.copy(memory + 1, memory, sizeof(int), {});
    set_launch_delay(0ms);
    api.set_zero(memory + 1, sizeof(int), {});
    api.use(1);
    api.synchronize({});
    EXPECT_EQ(memory[1], 0);
    api.free(memory);
}

TEST_F(StandInCuda, AsksAnEventBehindTheDriversLock) {
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    std::atomic<bool> has_answered = false;
    std::thread asks;
    {
        const HeldDriver held;
        asks = std::thread([&] {
            EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
            has_answered = true;
        });
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(has_answered);
    }
    asks.join();
    EXPECT_TRUE(has_answered);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

// A word of device memory and two streams; `first` is captured.
class StandInCapture : public StandInCuda {
protected:
    void SetUp() override {
        ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&word), sizeof *word), cudaSuccess);
        for (cudaStream_t* const stream : {&first, &second}) {
            ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
        }
        ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        ASSERT_EQ(cudaMemset(word, 0, sizeof *word), cudaSuccess);
        ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal), cudaSuccess);
    }
    void TearDown() override {
        EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
        for (cudaStream_t const stream : {first, second}) {
            EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
        }
        EXPECT_EQ(cudaFree(word), cudaSuccess);
        StandInCuda::TearDown();
    }
    void order(cudaStream_t before, cudaStream_t after) {
        EXPECT_EQ(cudaEventRecord(event, before), cudaSuccess);
        EXPECT_EQ(cudaStreamWaitEvent(after, event, 0), cudaSuccess);
    }
    void expect_end(cudaError_t error) {
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(first, &graph), error);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    int read() {
        int value = 0;
        EXPECT_EQ(cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
        return value;
    }

    int* word = nullptr;
    cudaStream_t first = nullptr, second = nullptr;
    cudaEvent_t event = nullptr;
};

TEST_F(StandInCapture, RunsInEachLaunchWhatAllItsStreamsWereGiven) {
    EXPECT_EQ(cudaMemsetAsync(word, 1, 1, first), cudaSuccess);
    order(first, second);
    EXPECT_EQ(cudaMemsetAsync(word, 2, 1, second), cudaSuccess);
    order(second, first);
    EXPECT_EQ(cudaMemsetAsync(reinterpret_cast<char*>(word) + 1, 3, 1, first), cudaSuccess);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(second, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(first, &graph), cudaSuccess);
    EXPECT_EQ(cudaStreamIsCapturing(second, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_EQ(read(), 0) << "a capture runs nothing";
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    for (int launch = 0; launch < 2; ++launch) {
        EXPECT_EQ(cudaMemset(word, 0, sizeof *word), cudaSuccess);
        EXPECT_EQ(cudaGraphLaunch(exec, second), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
        EXPECT_EQ(read(), 0x0302);
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(StandInCapture, RunsUnorderedWorkInAnotherOrderThanItWasGiven) {
    order(first, second);
    EXPECT_EQ(cudaMemsetAsync(word, 1, 1, first), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(word, 2, 1, second), cudaSuccess);
    order(second, first);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(first, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(exec, second), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_EQ(read(), 1);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(StandInCapture, IsInvalidAfterWhatItForbids) {
    EXPECT_EQ(cudaStreamSynchronize(first), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaMemsetAsync(word, 1, 1, first), cudaErrorStreamCaptureInvalidated);
    expect_end(cudaErrorStreamCaptureInvalidated);
    ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal), cudaSuccess);
    void* memory = nullptr;
    std::thread([&] {
        EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    }).join();
    expect_end(cudaErrorStreamCaptureInvalidated);
    ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, second), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(first, event, 0), cudaErrorStreamCaptureIsolation);
    expect_end(cudaErrorStreamCaptureInvalidated);
    ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), cudaErrorStreamCaptureInvalidated);
    expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(StandInCapture, LetsThreadsAskThatHaveSaidSo) {
    std::thread([&] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
        EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
        EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
        EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    }).join();
    EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    expect_end(cudaSuccess);
}

TEST_F(StandInCapture, EndsOnItsOwnStreamAndThreadWithAllOthersJoined) {
    cudaGraph_t graph = nullptr;
    order(first, second);
    EXPECT_EQ(cudaMemsetAsync(word, 1, 1, second), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(second, &graph), cudaErrorStreamCaptureUnmatched);
    std::thread([&] {
        EXPECT_EQ(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureWrongThread);
    }).join();
    expect_end(cudaErrorStreamCaptureUnjoined);
}

}  // namespace
}  // namespace ddp::standin_cuda
