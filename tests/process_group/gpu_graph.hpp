// CUDA graphs of tests.
#pragma once

#include <ddp/stream.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <functional>

namespace ddp::testing {

// What the body puts on a stream, as a graph. Gone before its group.
class GpuGraph {
public:
    GpuGraph(Stream stream, const std::function<void()>& body) : stream_(stream) {
        begin(stream);
        try {
            body();
        } catch (...) {
            give_up(stream);
            throw;
        }
        EXPECT_EQ(end(stream, &graph_), cudaSuccess);
        EXPECT_EQ(cudaGraphInstantiate(&exec_, graph_, 0), cudaSuccess);
    }
    ~GpuGraph() {
        EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    }
    GpuGraph(const GpuGraph&) = delete;
    GpuGraph& operator=(const GpuGraph&) = delete;

    static void begin(Stream stream) {
        ASSERT_EQ(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeGlobal),
                  cudaSuccess);
    }
    static cudaError_t end(Stream stream, cudaGraph_t* graph) {
        return cudaStreamEndCapture(stream.handle(), graph);
    }
    static void give_up(Stream stream) {
        cudaGraph_t graph = nullptr;
        static_cast<void>(end(stream, &graph));
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    void launch() { EXPECT_EQ(cudaGraphLaunch(exec_, stream_.handle()), cudaSuccess); }

private:
    Stream stream_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
};

inline void finish(Stream stream) {
    EXPECT_EQ(cudaStreamSynchronize(stream.handle()), cudaSuccess);
}

}  // namespace ddp::testing
