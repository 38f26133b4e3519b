// libgloo, loaded when the first group needs it: a program that never does so starts without it and
// the libraries that it needs in turn. One function of it is called by name; all else is virtual.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace gloo::transport {
class Device;
namespace tcp {
struct attr;
}
}  // namespace gloo::transport

namespace ddp::gloo {

struct GlooLibrary {
    using CreateDevice =
        std::shared_ptr<::gloo::transport::Device> (*)(const ::gloo::transport::tcp::attr&);
    CreateDevice create_device;

    // The first of these names or paths that can be loaded; it stays loaded. Throws BackendError
    // that says why none can.
    static GlooLibrary load(std::span<const std::string> names);
    // That of this build: by its name, else where the build found it. Throws as the other.
    static const GlooLibrary& load();
};

}  // namespace ddp::gloo
