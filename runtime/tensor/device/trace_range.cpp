#include "tensor/device/trace_range.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace ddp::device {

TraceRange::TraceRange(const char* name) { static_cast<void>(nvtxRangePushA(name)); }
TraceRange::~TraceRange() { static_cast<void>(nvtxRangePop()); }

}  // namespace ddp::device
#else
namespace ddp::device {

TraceRange::TraceRange(const char*) {}
TraceRange::~TraceRange() {}

}  // namespace ddp::device
#endif
