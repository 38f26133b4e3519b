// What ddp::launch() takes from the ddp-launch that it started, and what that one takes from its
// environment. Input: which of the two, then the payload or the variable's value.
#include "contract/host_link.hpp"
#include "fuzz/seeds.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

namespace {

using namespace ddp::contract;

// What was understood means the same when it is said again, but for a text too long to be sent.
void read_end(std::string_view payload) {
    const LaunchEnd end = parse_launch_end(payload);
    const std::string once = to_payload(end);
    if (to_payload(parse_launch_end(once)) != once) std::abort();
}

// The value with 'L' and 'R' for the numbers of two descriptors that there are.
void take_link(std::string_view text) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    std::string value;
    for (const char letter : text) {
        if (letter == '\0') break;
        value += letter == 'L'   ? std::to_string(ends[0])
                 : letter == 'R' ? std::to_string(ends[1])
                                 : std::string(1, letter);
    }
    ::setenv(host_link_variable, value.c_str(), 1);
    {
        const HostLink link = HostLink::take();
        if (std::getenv(host_link_variable) != nullptr) std::abort();
        link.send({.exit_code = 3});
    }
    for (const int fd : ends) ::close(fd);  // unless the link was theirs
}

// Descriptors of this process that are not in play are named by numbers.
bool names_only_ours(std::string_view text) {
    text = text.substr(0, text.find('\0'));
    const std::size_t colon = text.find(':');
    if (colon != text.npos) text = text.substr(0, text.find(':', colon + 1));
    return text.find_first_of("0123456789") == text.npos;
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    const LaunchEnd failed{.exit_code = 137,
                           .report = "rank 1 was killed",
                           .ends = {{.rank = 1, .status = {.signal = SIGSEGV, .core_dumped = true}},
                                    {.rank = 0, .status = {.code = 3}, .stopped_with = SIGTERM}}};
    const LaunchEnd wrong{
        .kind = LaunchEnd::Kind::wrong_command_line, .exit_code = 2, .report = "?"};
    std::string zero(1, '\0');
    return {zero + to_payload(failed),
            zero + to_payload(wrong),
            zero + to_payload({}),
            "\x01L:R:1",
            "\x01L:R:0",
            "\x01L:R",
            "\x01"
            "0:1:2"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    if (input.byte() % 2 == 1) {
        const std::string_view text = input.rest();
        if (names_only_ours(text)) take_link(text);
        return 0;
    }
    try {
        read_end(input.rest());
    } catch (const ddp::UsageError&) {
        return 0;
    }
    return 0;
}
