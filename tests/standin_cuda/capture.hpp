// Captures: what streams write down instead of doing it, and the graphs that come of that.
//
//   begun on a stream -> others join by waiting for an event of it -> ended on the first stream
//
// What CUDA forbids meanwhile makes a capture invalid, and its end says so. A graph's nodes run in
// an order of the stand-in's choice that their dependencies allow: the last one that could.
#pragma once

#include "support/host_stream.hpp"

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace ddp::standin_cuda {

// Nodes of a capture, after which comes what is put on a stream next.
using After = std::set<std::size_t>;

struct Graph {
    struct Node {
        std::function<std::function<void()>()> prepare;  // at each launch, on its caller's thread
        After after;
    };
    std::vector<Node> nodes;

    std::vector<std::size_t> order() const;
};

class Capture {
public:
    Capture(testing::HostStream& origin, cudaStreamCaptureMode mode);

    bool forbids_unsafe_calls(cudaStreamCaptureMode mode_of_thread) const;
    testing::HostStream& origin() const { return origin_; }
    bool may_be_ended_here() const;
    bool has_all_joined() const;  // the origin comes after all that the others do

    bool is_valid = true;
    std::map<testing::HostStream*, After> streams;
    Graph graph;

private:
    testing::HostStream& origin_;
    cudaStreamCaptureMode mode_;
    std::thread::id thread_ = std::this_thread::get_id();
};

// What an event that was recorded in a capture stands for.
struct CapturedPoint {
    std::weak_ptr<Capture> capture;
    After after;
};

// Those of the process.
class Captures {
public:
    static Captures& get();

    cudaError_t begin(testing::HostStream& stream, cudaStreamCaptureMode mode);
    cudaError_t end(testing::HostStream& stream, Graph& graph);
    cudaStreamCaptureStatus status(testing::HostStream& stream);

    enum class Put { not_captured, done, invalid };
    Put put(testing::HostStream& stream, std::function<std::function<void()>()> prepare);
    // Null where the stream is not captured.
    cudaError_t record(testing::HostStream& stream, std::shared_ptr<CapturedPoint>& point);
    // A stream waits for an event: of a capture, or null.
    cudaError_t wait(testing::HostStream& stream, const std::shared_ptr<CapturedPoint>& point,
                     bool is_default);

    // What each call asks that a capture forbids: everywhere, on a stream that is captured.
    cudaError_t unsafe();
    cudaError_t forbidden_on(testing::HostStream& stream);
    void exchange_mode(cudaStreamCaptureMode& mode);

private:
    std::shared_ptr<Capture> find(testing::HostStream& stream) const;

    std::mutex mutex_;
    std::set<std::shared_ptr<Capture>> active_;
};

}  // namespace ddp::standin_cuda

struct CUgraph_st {
    ddp::standin_cuda::Graph graph;
};
struct CUgraphExec_st {
    ddp::standin_cuda::Graph graph;
    std::vector<std::size_t> order = graph.order();
};
