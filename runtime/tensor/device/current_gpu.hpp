// A GPU made the thread's current one for a while. It stays that where this process has no context
// on the one before (0, on a new thread): to make that current would create one, half a gigabyte.
#pragma once

#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

namespace ddp::device {

class CurrentGpu {
public:
    CurrentGpu(DeviceApi& api, int index)
        : api_(api), before_(api.current()), changed_(before_ != index) {
        if (changed_) api_.use(index);
    }
    CurrentGpu(const CurrentGpu&) = delete;
    CurrentGpu& operator=(const CurrentGpu&) = delete;
    ~CurrentGpu() {
        if (!changed_) return;
        try {
            if (api_.has_context(before_)) api_.use(before_);
        } catch (const Error&) {  // it was current, so the GPU is lost: the next call says so
        }
    }

private:
    DeviceApi& api_;
    int before_;
    bool changed_;
};

// For what is given back, on whatever thread that happens: with its GPU current, as each call opens
// the current one. Where the driver has gone before, so has what it gave.
template <class Call>
void give_back_on(DeviceApi& api, int index, Call call) noexcept {
    try {
        const CurrentGpu current(api, index);
        call();
    } catch (const Error&) {
    }
}

}  // namespace ddp::device
