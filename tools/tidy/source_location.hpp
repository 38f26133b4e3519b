// For tools/tidy.sh alone: clang 14 cannot read libstdc++'s <source_location>.
#pragma once
#include <source_location>
#ifndef __cpp_lib_source_location
namespace std {
struct source_location {
    static constexpr source_location current() noexcept { return {}; }
    constexpr const char* file_name() const noexcept { return ""; }
    constexpr const char* function_name() const noexcept { return ""; }
    constexpr unsigned line() const noexcept { return 0; }
    constexpr unsigned column() const noexcept { return 0; }
};
}  // namespace std
#endif
