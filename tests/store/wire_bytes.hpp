// Bytes of the store's wire format, put together by hand and on purpose without the product's
// encoder, so that a mistake in one does not hide in the other. Little-endian, as protocol.md says.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::store_test {

inline std::string number(std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
    return out;
}
inline std::string u8(int value) { return number(static_cast<std::uint64_t>(value), 1); }
inline std::string u32(std::uint32_t value) { return number(value, 4); }
inline std::string u64(std::uint64_t value) { return number(value, 8); }
inline std::string i64(std::int64_t value) { return number(static_cast<std::uint64_t>(value), 8); }
inline std::string str(const std::string& text) { return u64(text.size()) + text; }

// VALIDATE, which comes first in the newer numbering.
inline const std::string hello{"\x00\xCE\xF7\x85\x3C", 5};

// MULTI_SET of nothing: a whole request without reply or effect, in both numberings. A server takes
// only a small request from a connection that has sent none.
inline const std::string nothing = u8(11) + u64(0);

// What both numberings have, as protocol.md lists it.
struct Opcodes {
    std::string name;
    std::string opening;
    int set, compare_set, get, add, check, wait, num_keys, delete_key, append, multi_get, multi_set,
        cancel;
};
inline const Opcodes modern{"Modern", hello, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
inline const Opcodes legacy{"Legacy", "", 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12};

}  // namespace ddp::store_test
