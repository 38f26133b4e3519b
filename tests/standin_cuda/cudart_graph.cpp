// Captures and graphs of the stand-in runtime.
#include "standin_cuda/capture.hpp"
#include "standin_cuda/driver.hpp"

#include <memory>

using ddp::standin_cuda::Captures;
using ddp::standin_cuda::Driver;

namespace {

cudaError_t answer(const char* function, cudaError_t error) {
    return Driver::answer(function, error);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    DDP_STANDIN_OPEN("cudaStreamBeginCapture");
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr) return answer("cudaStreamBeginCapture", cudaErrorInvalidResourceHandle);
    if (driver.is_default(handle)) {
        return answer("cudaStreamBeginCapture", cudaErrorStreamCaptureUnsupported);
    }
    return answer("cudaStreamBeginCapture", Captures::get().begin(*stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    DDP_STANDIN_OPEN("cudaStreamEndCapture");
    const auto stream = Driver::get().find(handle);
    if (stream == nullptr) return answer("cudaStreamEndCapture", cudaErrorInvalidResourceHandle);
    *graph = nullptr;
    auto made = std::make_unique<CUgraph_st>();
    const cudaError_t error = Captures::get().end(*stream, made->graph);
    if (error == cudaSuccess) *graph = made.release();
    return answer("cudaStreamEndCapture", error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    DDP_STANDIN_OPEN("cudaStreamIsCapturing");
    const auto stream = Driver::get().find(handle);
    if (stream == nullptr) return answer("cudaStreamIsCapturing", cudaErrorInvalidResourceHandle);
    *status = Captures::get().status(*stream);
    return answer("cudaStreamIsCapturing", cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    DDP_STANDIN_OPEN("cudaThreadExchangeStreamCaptureMode");
    Captures::get().exchange_mode(*mode);
    return answer("cudaThreadExchangeStreamCaptureMode", cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    DDP_STANDIN_OPEN("cudaGraphInstantiate");
    if (graph == nullptr) return answer("cudaGraphInstantiate", cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{graph->graph};
    return answer("cudaGraphInstantiate", cudaSuccess);
}

// All that is not captured itself runs on the one stream.
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    DDP_STANDIN_OPEN("cudaGraphLaunch");
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr || exec == nullptr) {
        return answer("cudaGraphLaunch", cudaErrorInvalidResourceHandle);
    }
    for (const std::size_t node : exec->order) {
        const cudaError_t error = driver.put(handle, exec->graph.nodes[node].prepare());
        if (error != cudaSuccess) return answer("cudaGraphLaunch", error);
    }
    return answer("cudaGraphLaunch", cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return answer("cudaGraphExecDestroy", cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return answer("cudaGraphDestroy", cudaSuccess);
}

}  // extern "C"
