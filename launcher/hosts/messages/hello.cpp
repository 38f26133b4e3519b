#include "launcher/hosts/messages/hello.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

constexpr std::string_view hello_name =
    "\xDD"
    "DDP";

}  // namespace

std::string encode_hello(Transport transport) {
    std::string hello(hello_name);
    hello += static_cast<char>(link_version);
    return hello += static_cast<char>(transport);
}

SaidHello look_for_hello(std::string_view bytes) {
    const std::size_t named = std::min(bytes.size(), hello_name.size());
    if (bytes.substr(0, named) != hello_name.substr(0, named)) return {Hello::stranger};
    if (bytes.size() < hello_bytes) return {Hello::not_yet};
    const auto version = static_cast<std::uint8_t>(bytes[hello_name.size()]);
    if (version != link_version) return {Hello::other_version, version};
    const auto flags = static_cast<std::uint8_t>(bytes[hello_name.size() + 1]);
    if (flags > static_cast<std::uint8_t>(Transport::credential)) return {Hello::stranger, version};
    return {Hello::agent, version, static_cast<Transport>(flags)};
}

}  // namespace ddp::launcher
