// The stand-in NCCL as the code under test opens it: by its path, privately. Tests that use this
// are compiled with DDP_STAND_IN_FOLDER and link ddp::host_device_api.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace ddp::testing {

inline std::string stand_in_path(const std::string& name = "libnccl_stand_in.so") {
    return std::string(DDP_STAND_IN_FOLDER) + "/" + name;
}

template <class Function>
Function* stand_in_function(const char* symbol, const std::string& path = stand_in_path()) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const function = library != nullptr ? ::dlsym(library, symbol) : nullptr;
    if (function == nullptr) throw std::runtime_error(std::string("no ") + symbol);
    return reinterpret_cast<Function*>(function);
}

// standin_nccl/stand_in.h tells which there are. For as long as this lives.
class ScopedKnob {
public:
    // Each variant of the library has knobs of its own.
    ScopedKnob(const char* name, const std::string& value,
               const std::string& library = stand_in_path())
        : name_(name),
          set_(stand_in_function<void(const char*, const char*)>("ddp_stand_in_set", library)) {
        set_(name_, value.c_str());
    }
    ~ScopedKnob() { set_(name_, nullptr); }
    ScopedKnob(const ScopedKnob&) = delete;
    ScopedKnob& operator=(const ScopedKnob&) = delete;

private:
    const char* name_;
    void (*set_)(const char* name, const char* value);
};

inline int count_stand_in_calls(const char* function) {
    return stand_in_function<int(const char*)>("ddp_stand_in_calls")(function);
}

}  // namespace ddp::testing
