// Where tests of tensors run: on virtual CPU devices, on GPUs that are host memory, and on a real
// one. Each program that includes tensor_suite.hpp says which.
#pragma once

#include "tensor/device/device_api.hpp"

#include <ddp/device.hpp>

#include <cstdlib>
#include <optional>
#include <ostream>
#include <string>

namespace ddp::testing {

// An environment variable until the end of the scope; null: it is not set.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) {
        if (const char* const before = std::getenv(name)) before_ = before;
        set(value);
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { set(before_ ? before_->c_str() : nullptr); }

private:
    void set(const char* value) {
        if (value == nullptr) {
            ::unsetenv(name_);
        } else {
            ::setenv(name_, value, 1);
        }
    }
    const char* name_;
    std::optional<std::string> before_;
};

struct Place {
    const char* name;
    Device here;
    Device there;                            // another one
    device::DeviceApi* (*make)() = nullptr;  // which the test uses and deletes; null: the built-in
    friend std::ostream& operator<<(std::ostream& out, const Place& place) {
        return out << place.name;
    }
};

}  // namespace ddp::testing
