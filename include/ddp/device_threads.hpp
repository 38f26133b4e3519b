// DeviceThreads: a thread for each of several devices, kept between calls.
#pragma once

#include <ddp/device.hpp>
#include <ddp/export.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ddp {

// The first device's thread is the caller's.
class DDP_API DeviceThreads {
public:
    using Body = std::function<void(std::size_t replica)>;  // what a thread does for its device

    // Throws UsageError for no device and for one given twice.
    explicit DeviceThreads(std::vector<Device> devices);
    ~DeviceThreads();
    DeviceThreads(DeviceThreads&&) noexcept;
    DeviceThreads& operator=(DeviceThreads&&) noexcept;

    std::span<const Device> devices() const noexcept;  // a thread each
    // body(0), ..., body(count - 1), each with its device as the default one: body(0) on the
    // calling thread, the others on their devices'. One call at a time. Returns, or throws, when
    // all that began have ended, however long that takes; once one has failed no other begins.
    // Throws what the first device that failed threw, with "replica 1 on cpu:1: " before its text
    // and the original nested in it. The class is the same for ddp's errors and for the standard
    // library's that are made from a text; of any other it is the nearest base among these
    // (std::runtime_error for std::system_error), or ddp::Error where there is none.
    void run(std::size_t count, const Body& body);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
