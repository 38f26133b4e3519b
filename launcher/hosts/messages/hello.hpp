// How an agent begins a connection, before its first frame: 0xDD, "DDP", version, flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launcher {

inline constexpr std::size_t hello_bytes = 6;
inline constexpr std::uint8_t link_version = 4;
// What follows the hello: frames as they are, or TLS with the frames inside; with `credential` the
// coordinator first says the token, in a credential (munge.hpp).
enum class Transport : std::uint8_t { clear = 0, tls = 1, credential = 2 };
std::string encode_hello(Transport transport = Transport::clear);
// Of the bytes that are there already, at most hello_bytes. Not yet: all so far can be a hello's
// beginning. An agent of another version is one with which this one cannot speak.
enum class Hello : std::uint8_t { not_yet, agent, other_version, stranger };
struct SaidHello {
    Hello kind = Hello::not_yet;
    std::uint8_t version = 0;                // of an agent of any version
    Transport transport = Transport::clear;  // of one of this version
};
SaidHello look_for_hello(std::string_view bytes);

}  // namespace ddp::launcher
