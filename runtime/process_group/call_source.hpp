// The source of the collectives that this thread starts (the program, or a reducer's backward), a
// tag in their signatures: a different order of two sources on another rank is detected even where
// the calls look alike. Threads of the program are one source.
#pragma once

#include "backends/call_header.hpp"

#include <cstdint>
#include <utility>

namespace ddp::process_group {

inline thread_local constinit std::uint32_t current_source = 0;  // the program itself

// While it lives, collectives that this thread starts are `source`'s.
class SourceScope {
public:
    explicit SourceScope(backends::Source source)
        : before_(std::exchange(current_source, backends::encode(source))) {}
    ~SourceScope() { current_source = before_; }
    SourceScope(const SourceScope&) = delete;
    SourceScope& operator=(const SourceScope&) = delete;

private:
    std::uint32_t before_;
};

}  // namespace ddp::process_group
