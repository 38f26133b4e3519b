#include "backends/gloo/transport/gloo_library.hpp"

#include <ddp/error.hpp>

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>

namespace ddp::gloo {
namespace {

// gloo::transport::tcp::CreateDevice(const attr&)
constexpr const char* create_device_symbol = "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE";

std::string last_trouble() {
    const char* text = ::dlerror();
    return text != nullptr ? text : "no reason given";
}

// What Gloo throws is caught here, and two copies of libstdc++ do not know each other's exceptions:
// the process would abort when a peer leaves.
void require_same_libstdcxx(void* library) {
    const void* const theirs = ::dlsym(library, "__cxa_get_globals");
    if (theirs == reinterpret_cast<const void*>(&abi::__cxa_get_globals)) return;
    throw BackendError("gloo", 0,
                       "this program has a libstdc++ of its own (-static-libstdc++, as of "
                       "ddp_start_fast), and libgloo another; link the program without that");
}

}  // namespace

GlooLibrary GlooLibrary::load(std::span<const std::string> names) {
    std::string troubles;
    for (const std::string& name : names) {
        // Never unloaded: what it threw, and its threads, may outlive any group.
        void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        void* symbol = library != nullptr ? ::dlsym(library, create_device_symbol) : nullptr;
        if (symbol != nullptr) {
            require_same_libstdcxx(library);
            return {reinterpret_cast<CreateDevice>(symbol)};
        }
        troubles += (troubles.empty() ? "" : "; ") + last_trouble();
        if (library != nullptr) ::dlclose(library);
    }
    throw BackendError("gloo", 0,
                       "cannot load libgloo: " + troubles +
                           "; install it on this host (Debian: libgloo0), or name its folder in "
                           "LD_LIBRARY_PATH");
}

const GlooLibrary& GlooLibrary::load() {
    static const GlooLibrary library =
        load(std::array<std::string, 2>{DDP_GLOO_SONAME, DDP_GLOO_PATH});
    return library;
}

}  // namespace ddp::gloo
