#include "base/process/unmapped_user.hpp"

#include "base/process/process_tree.hpp"

#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ddp::base {
namespace {

uid_t read_overflow_user() {
    const std::string text = read_small_file("/proc/sys/kernel/overflowuid");
    uid_t user = 65534;
    std::from_chars(text.data(), text.data() + text.size(), user);
    return user;
}

// The map is one line "0 0 4294967295" outside of all user namespaces.
bool lacks_users() {
    const std::string map = read_small_file("/proc/self/uid_map");
    std::uint64_t here = 0, there = 0, count = 0;
    const bool read =
        std::sscanf(map.c_str(), "%" SCNu64 " %" SCNu64 " %" SCNu64, &here, &there, &count) == 3;
    return !read || here != 0 || count < UINT32_MAX;
}

}  // namespace

bool stands_for_many(uid_t user) {
    static const uid_t overflow_user = read_overflow_user();
    return user == overflow_user && lacks_users();
}

}  // namespace ddp::base
