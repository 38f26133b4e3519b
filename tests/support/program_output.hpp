// What a program under test writes, as its test reads it.
#pragma once

#include "base/unique_fd.hpp"

#include <unistd.h>

#include <array>
#include <string>

namespace ddp::testing {

// All that is there now, of a descriptor that does not block; it is closed at its end.
inline void read_into(base::UniqueFd& fd, std::string& text) {
    std::array<char, 65536> bytes;
    for (;;) {
        const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
        if (got > 0) {
            text.append(bytes.data(), static_cast<std::size_t>(got));
        } else {
            if (got == 0) fd.reset();
            return;
        }
    }
}

// How often, one after the other.
inline int count_of(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + part.size())) {
        ++found;
    }
    return found;
}

}  // namespace ddp::testing
