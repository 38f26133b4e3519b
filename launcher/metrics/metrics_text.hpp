// A job's view as Prometheus reads it (docs/metrics.md). Pure.
#pragma once

#include "launcher/inspect/run_view.hpp"

#include <cstdint>
#include <string>

namespace ddp::launcher {

enum class MetricsFormat : std::uint8_t {
    text,         // Prometheus's text, 0.0.4
    openmetrics,  // OpenMetrics 1.0.0
};
const char* content_type(MetricsFormat) noexcept;

std::string metrics_text(const RunFacts& facts, const RunView& view, MetricsFormat format);

}  // namespace ddp::launcher
