// Numbers in files of /proc and /sys. Nothing where there is no such file, or no number in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::doctor {

// The first word of the file; "max" is none.
std::optional<std::uint64_t> number_in(const std::string& path);
// The word behind `name` in a file of lines "name 123 ...".
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& name);

}  // namespace ddp::doctor
