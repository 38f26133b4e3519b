// When the gradients of each bucket were there and when their averages came, by a GPU's clock: of
// the last backward that sends. Events mark the moments on the streams; a stream aside waits for
// each bucket's operation.
#pragma once

#include <ddp/process_group.hpp>
#include <ddp/reducer_options.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <vector>

struct CUevent_st;

namespace ddp::reducer {

class GpuTimes {
public:
    explicit GpuTimes(const Device& gpu);
    ~GpuTimes();
    GpuTimes(const GpuTimes&) = delete;
    GpuTimes& operator=(const GpuTimes&) = delete;

    // A backward with so many buckets begins.
    void start(std::size_t buckets);
    // What is on the stream makes the bucket's gradients.
    void note_ready(std::size_t bucket, Stream stream);
    // Its averages come when the operation ends.
    void note_sent(std::size_t bucket, Work& work);
    // What is on the stream are all gradients, and then all averages.
    void note_computed(Stream stream);
    void note_averaged(Stream stream);

    // What was sent by a backward that has not come to note_averaged() has ended.
    void finish_in_flight() noexcept;

    // communication, exposed and overlap, once: waits until the GPU has come to the end of the
    // step. Leaves them where there is nothing new: a step within a CUDA graph. Throws
    // BackendError.
    void take_into(StepStatistics& statistics);

private:
    struct Bucket {
        CUevent_st* ready = nullptr;
        CUevent_st* averaged = nullptr;
        bool is_sent = false;
    };
    void note(CUevent_st* event, Stream stream);

    Device gpu_;
    CUstream_st* aside_ = nullptr;
    std::vector<Bucket> buckets_;  // as many as a backward ever had
    CUevent_st* computed_ = nullptr;
    CUevent_st* averaged_ = nullptr;
    bool is_captured_ = false;
    bool is_under_way_ = false;  // from start() to note_averaged()
    bool is_new_ = false;
};

}  // namespace ddp::reducer
