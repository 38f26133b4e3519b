// Draws a run as an SVG of its own, without any library: bus bandwidth and time against the size.
#pragma once

#include "bench/bench_options.hpp"
#include "bench/report.hpp"

namespace ddp::bench {

// To options.plot; rows without bytes are left out. Throws SystemError.
void write_plot(const Options& options, const Report& report);

}  // namespace ddp::bench
