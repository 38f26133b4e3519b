// A call hands each thread its task under one mutex and waits until none is running. Invariant: no
// thread touches the body or the errors of a call that has returned.
#include <ddp/device_threads.hpp>
#include <ddp/error.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "base/process/background_thread.hpp"
#include "data_parallel/replica_error.hpp"
#include "tensor/device/device_api.hpp"

namespace ddp {

class __attribute__((visibility("hidden"))) DeviceThreads::Impl {
public:
    explicit Impl(std::vector<Device> devices)
        : devices_(std::move(devices)), errors_(devices_.size()), workers_(devices_.size()) {
        require_different();
        allow_peer_access();
        try {
            for (std::size_t i = 1; i < workers_.size(); ++i) {
                workers_[i].thread = base::start_background_thread([this, i] { work(i); });
            }
        } catch (...) {
            stop();
            throw;
        }
    }
    ~Impl() { stop(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    std::span<const Device> devices() const noexcept { return devices_; }

    void run(std::size_t count, const Body& body) {
        start(count, body);
        execute(0);
        {
            std::unique_lock lock(mutex_);
            all_done_.wait(lock, [this] { return running_ == 0; });
            body_ = nullptr;
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (errors_[i] == nullptr) continue;
            const std::exception_ptr error = errors_[i];
            std::ranges::fill(errors_, nullptr);
            data_parallel::rethrow_of_replica(error, i, devices_[i]);
        }
    }

private:
    struct Worker {
        std::thread thread;
        std::condition_variable wake;
        bool has_task = false;
    };

    void require_different() const {
        if (devices_.empty()) throw UsageError("replicas need at least one device; none is given");
        for (auto device = devices_.begin(); device != devices_.end(); ++device) {
            if (std::find(device + 1, devices_.end(), *device) == devices_.end()) continue;
            throw UsageError("replicas need different devices; " + to_string(*device) +
                             " is given twice");
        }
    }

    // Parameters and gradients go from one to the other in each step.
    void allow_peer_access() const {
        for (const Device& device : devices_) {
            for (const Device& peer : devices_) {
                const bool are_gpus =
                    device.type == DeviceType::cuda && peer.type == DeviceType::cuda;
                if (!are_gpus || device == peer) continue;
                device::device_api().allow_peer_access(device.index, peer.index);
            }
        }
    }

    void start(std::size_t count, const Body& body) {
        if (count == 0 || count > devices_.size()) {
            throw UsageError(std::to_string(count) + " replicas cannot run on " +
                             std::to_string(devices_.size()) +
                             " devices: there is one replica a device, and at least one runs");
        }
        const std::lock_guard lock(mutex_);
        if (body_ != nullptr) {
            throw UsageError(
                "replicas are at work: finish one call before the next, on one thread at a time");
        }
        body_ = &body;
        failed_ = false;
        running_ = count - 1;
        for (std::size_t i = 1; i < count; ++i) {
            workers_[i].has_task = true;
            workers_[i].wake.notify_one();
        }
    }

    void execute(std::size_t replica) {
        if (failed_) return;
        try {
            const DeviceScope scope(devices_[replica]);
            (*body_)(replica);
        } catch (...) {
            errors_[replica] = std::current_exception();
            failed_ = true;
        }
    }

    void work(std::size_t replica) {
        Worker& me = workers_[replica];
        std::unique_lock lock(mutex_);
        for (;;) {
            me.wake.wait(lock, [&] { return me.has_task || closed_; });
            if (closed_) return;
            me.has_task = false;
            lock.unlock();
            execute(replica);
            lock.lock();
            if (--running_ == 0) all_done_.notify_one();
        }
    }

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            for (Worker& worker : workers_) worker.wake.notify_one();
        }
        for (Worker& worker : workers_) {
            if (worker.thread.joinable()) worker.thread.join();
        }
    }

    const std::vector<Device> devices_;
    std::mutex mutex_;
    std::condition_variable all_done_;
    const Body* body_ = nullptr;  // of the call in progress
    std::size_t running_ = 0;     // threads that have not ended their task
    bool closed_ = false;
    std::atomic<bool> failed_ = false;
    std::vector<std::exception_ptr> errors_;  // each written by its replica's thread
    std::vector<Worker> workers_;             // the first one is the caller: no thread
};

DeviceThreads::DeviceThreads(std::vector<Device> devices)
    : impl_(std::make_unique<Impl>(std::move(devices))) {}
DeviceThreads::~DeviceThreads() = default;
DeviceThreads::DeviceThreads(DeviceThreads&&) noexcept = default;
DeviceThreads& DeviceThreads::operator=(DeviceThreads&&) noexcept = default;

std::span<const Device> DeviceThreads::devices() const noexcept { return impl_->devices(); }
void DeviceThreads::run(std::size_t count, const Body& body) { impl_->run(count, body); }

}  // namespace ddp
