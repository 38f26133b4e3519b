// A stand-in for the CUDA runtime, on the host: the functions of cuda_runtime_api.h that ddp calls
// (cudart_*.cpp), over streams that are threads and devices that are host memory kept apart. What
// is compiled against CUDA's headers runs on it as it is: device_api_cuda.cpp, the kernels
// (kernels.hpp), the examples. It models what bites on a GPU and not on a CPU:
//
//   contexts       which devices this process has opened: a call on a fresh thread opens device 0
//   errors         the thread's last one, cudaErrorNotReady among them; sticky ones of a context
//   default stream ordered with all blocking streams of its device
//   driver lock    held in cudaFree, cudaMalloc, and a launch that finds its stream's queue full
//   kernels        refused without an image for the device's architecture; loaded at first use,
//                  which waits for the device (CUDA_MODULE_LOADING=LAZY)
//   captures       modes of threads, what they forbid, streams that join; graphs (capture.hpp)
//
// What a GPU would answer with an illegal access, later and somewhere else, is an error of the call
// that asked for it. Here are the knobs and the questions of tests. Any thread.
#pragma once

#include <driver_types.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <string>

namespace ddp::standin_cuda {

// Before the first call of the runtime (default 1). With one device it is this process's own (a
// rank for each process, each with its GPU); with more, all processes see the same ones.
void set_devices(int devices);
int devices();
// The one device, too, is the same for all processes, which share it.
void share_device();
// From now on; 0: there is no driver. Default: the version of CUDA's headers.
void set_driver_version(int version);
// Of each device, 1 GiB unless set.
void set_memory(std::size_t bytes);
// As compute capability: 90 is 9.0, the default.
void set_architecture(int architecture);
// Each kernel, copy and memset starts this much later on its stream.
void set_launch_delay(std::chrono::microseconds delay);
// From now on each call that needs the device's context answers with this error, as after an
// illegal access or a failed assertion of a kernel.
void break_device(int device, cudaError_t error);

// All as in a new process, for the next test: no memory, stream or event may be left.
void start_anew();

// Devices whose primary context this process has opened.
std::set<int> contexts();
// Of all devices, and pinned.
std::size_t allocated();
// Streams and events that exist: to see that nothing is left.
std::size_t handles();
// Copies between two devices that went by way of the host, as peer access was not enabled.
std::size_t staged_copies();
// Kernels that were loaded while their device was busy, for which each waited.
std::size_t late_loads();
// Kernels of the program that the current device has not loaded.
std::size_t kernels_not_loaded();
// Calls of the runtime so far, by name: "cudaEventQuery".
std::size_t calls_of(const std::string& function);

// While one exists the driver's lock is held, as by another thread's cudaFree behind a kernel that
// does not end.
class HeldDriver {
public:
    HeldDriver();
    ~HeldDriver();
    HeldDriver(const HeldDriver&) = delete;
    HeldDriver& operator=(const HeldDriver&) = delete;
};

}  // namespace ddp::standin_cuda
