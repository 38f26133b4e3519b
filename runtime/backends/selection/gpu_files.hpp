// What the files and the environment of a host say of NVIDIA GPUs: whether there is a driver to
// ask, and whether the user wanted GPUs, so that a message says why none is used. Invariant: costs
// a few looks at names; nothing is opened.
#pragma once

#include <string>
#include <vector>

namespace ddp::backends {

struct GpuSearchPaths {
    std::string devices = "/dev";
    // Where libcuda.so.1 may be, which is only looked for beside WSL's /dev/dxg: other vendors'
    // GPUs have that file too.
    std::vector<std::string> libraries = {"/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu", "/usr/lib64"};
};

// Why there is no driver to ask. Empty: there is one, by /dev/nvidiactl, or on WSL2 by /dev/dxg and
// libcuda.so.1.
std::string describe_missing_driver(const GpuSearchPaths& paths = {});

// What asks for GPUs, as a sentence: "CUDA_VISIBLE_DEVICES is 0,1". Empty: nothing does. The
// variable's value, null where it is not set; "-1" is how to ask for none.
std::string find_request_for_gpus(const char* visible_devices, const GpuSearchPaths& paths = {});

}  // namespace ddp::backends
