// A stream of the host's device API: a queue and the thread that works it off, in order.
#pragma once

#include "support/host_stream.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ddp::testing {

// A moment in a stream's work, once reached always reached.
class HostPoint {
public:
    void reach();
    bool is_reached();
    void wait();
    std::chrono::steady_clock::time_point time();  // when it was reached

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false;
    std::chrono::steady_clock::time_point time_{};
};

class HostStream : public CUstream_st {
public:
    explicit HostStream(int device);
    // Joins. Aborts the process when work does not end: something hangs that nobody has aborted.
    ~HostStream();
    HostStream(const HostStream&) = delete;
    HostStream& operator=(const HostStream&) = delete;

    void put(std::function<void()> work);  // blocks while very much waits, as CUDA does
    bool is_full();                        // put would block
    void close();                          // ends after what was put there
    bool is_done();
    bool has_ended();    // closed, and all is done
    void synchronize();  // waits for what was put there before the call

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    std::uint64_t put_ = 0;
    std::uint64_t done_ = 0;
    bool closed_ = false;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace ddp::testing
