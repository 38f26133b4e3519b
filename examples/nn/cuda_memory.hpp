// What the CUDA examples ask of the CUDA runtime: its errors as exceptions, memory, a stream and a
// graph that free themselves.
#pragma once

#include <ddp/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

namespace nn::gpu {

inline void check(cudaError_t error, const char* call) {
    if (error == cudaSuccess) return;
    throw ddp::BackendError("cuda", error, std::string(call) + ": " + cudaGetErrorString(error));
}

struct FreeDevice {
    void operator()(void* memory) const { cudaFree(memory); }
};
struct FreePinned {
    void operator()(void* memory) const { cudaFreeHost(memory); }
};
struct DestroyStream {
    void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
};
// Zeroed memory of the current GPU.
template <class T>
using DeviceArray = std::unique_ptr<T[], FreeDevice>;
template <class T>
DeviceArray<T> make_device_array(std::size_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    DeviceArray<T> array(static_cast<T*>(memory));
    check(cudaMemset(memory, 0, count * sizeof(T)), "cudaMemset");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // no other stream waits for it
    return array;
}
// Of the host, for copies that the host need not wait for.
template <class T>
using PinnedArray = std::unique_ptr<T[], FreePinned>;
template <class T>
PinnedArray<T> make_pinned_array(std::size_t count) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, count * sizeof(T)), "cudaMallocHost");
    return PinnedArray<T>(static_cast<T*>(memory));
}

struct DestroyEvent {
    void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using OwnEvent = std::unique_ptr<CUevent_st, DestroyEvent>;
inline OwnEvent make_event() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return OwnEvent(event);
}

using OwnStream = std::unique_ptr<CUstream_st, DestroyStream>;
inline OwnStream make_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return OwnStream(stream);
}

struct DestroyGraph {
    void operator()(CUgraph_st* graph) const { cudaGraphDestroy(graph); }
    void operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }
};
// To be launched again and again.
using OwnGraph = std::unique_ptr<CUgraphExec_st, DestroyGraph>;
using CapturedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;
inline CapturedGraph end_capture(cudaStream_t stream) {
    cudaGraph_t captured = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream, &captured);
    CapturedGraph graph(captured);
    check(error, "cudaStreamEndCapture");
    return graph;
}
// What `work` puts on the stream, which does none of it now.
template <class Work>
OwnGraph capture(cudaStream_t stream, const Work& work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    try {
        work();
    } catch (...) {  // the group's stream, too, would stay captured
        try {
            end_capture(stream);
        } catch (const ddp::BackendError&) {
        }
        throw;
    }
    const CapturedGraph graph = end_capture(stream);
    cudaGraphExec_t made = nullptr;
    check(cudaGraphInstantiate(&made, graph.get(), 0), "cudaGraphInstantiate");
    return OwnGraph(made);
}

}  // namespace nn::gpu
