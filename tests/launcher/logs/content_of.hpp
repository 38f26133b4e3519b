#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ddp::launcher::testing {

inline std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ddp::launcher::testing
