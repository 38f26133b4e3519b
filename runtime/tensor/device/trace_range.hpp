// A range of this thread's time by a name, for NVIDIA's profilers (NVTX). Without one it is
// nothing, and so it is in builds without CUDA. Ranges of a thread nest.
#pragma once

namespace ddp::device {

class TraceRange {
public:
    explicit TraceRange(const char* name);  // which is copied
    ~TraceRange();
    TraceRange(const TraceRange&) = delete;
    TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace ddp::device
