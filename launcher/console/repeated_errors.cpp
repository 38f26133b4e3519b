#include "launcher/console/repeated_errors.hpp"

#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_kept = 64;  // different errors
constexpr std::size_t longest = 4096;

// As run_worker() and the terminate handler write it.
bool is_librarys_error(std::string_view line) {
    const std::size_t end_of_type = line.find(": ");
    return line.size() <= longest && end_of_type != line.npos && line.starts_with("ddp::") &&
           line.substr(0, end_of_type).ends_with("Error");
}

}  // namespace

std::string RepeatedErrors::without_repeated(std::string lines, bool continues) {
    if (lines.find("ddp::") == lines.npos) return lines;  // nearly always
    std::string kept;
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t newline = lines.find('\n', begin);
        const std::size_t end = newline == lines.npos ? lines.size() : newline + 1;
        const std::string_view line = std::string_view(lines).substr(begin, end - begin);
        if (std::exchange(continues, false) || !is_repeated(line)) kept += line;
        begin = end;
    }
    return kept;
}

bool RepeatedErrors::is_repeated(std::string_view line) {
    if (!is_librarys_error(line)) return false;
    if (shown_.contains(line)) return true;
    if (shown_.size() < most_kept) shown_.emplace(line);
    return false;
}

}  // namespace ddp::launcher
