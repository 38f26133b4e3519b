#include "support/host_stream.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ddp::testing {

namespace {
constexpr std::size_t most_waiting = 1024;
constexpr std::chrono::seconds patience{60};

void put_on(CUstream_st* stream, void (*work)(void*), void* argument) {
    static_cast<HostStream*>(stream)->put([work, argument] { work(argument); });
}
}  // namespace

void HostPoint::reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    time_ = std::chrono::steady_clock::now();
    changed_.notify_all();
}

bool HostPoint::is_reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
}

std::chrono::steady_clock::time_point HostPoint::time() {
    const std::lock_guard lock(mutex_);
    return time_;
}

void HostPoint::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
}

HostStream::HostStream(int stream_device)
    : CUstream_st{DDP_HOST_STREAM_MAGIC, stream_device, put_on, nullptr, nullptr},
      thread_([this] { run(); }) {}

HostStream::~HostStream() {
    close();
    {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, patience, [this] { return ended_; })) {
            std::fprintf(stderr, "HostStream: work on cuda:%d has not ended after 60 s\n", device);
            std::abort();
        }
    }
    thread_.join();
    magic = 0;
}

void HostStream::put(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < most_waiting; });
    waiting_.push_back(std::move(work));
    ++put_;
    changed_.notify_all();
}

bool HostStream::is_full() {
    const std::lock_guard lock(mutex_);
    return waiting_.size() >= most_waiting;
}

void HostStream::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

bool HostStream::is_done() {
    const std::lock_guard lock(mutex_);
    return done_ == put_;
}

bool HostStream::has_ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
}

void HostStream::synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, put = put_] { return done_ >= put; });
}

void HostStream::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
        if (waiting_.empty()) break;
        {
            const std::function<void()> work = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            work();
        }
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
    ended_ = true;
    changed_.notify_all();
}

}  // namespace ddp::testing
