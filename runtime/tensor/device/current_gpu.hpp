// A GPU made the thread's current one for a while.
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
            api_.use(before_);
        } catch (const Error&) {  // it was current, so the GPU is lost: the next call says so
        }
    }

private:
    DeviceApi& api_;
    int before_;
    bool changed_;
};

}  // namespace ddp::device
