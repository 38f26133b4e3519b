// LossNews: hosts whose packets get lost on their way again and again, for which ranks may wait: by
// what each kernel had to send anew over TCP. Pure, but for look_at_tcp().
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace ddp::launcher {

// Of a network namespace, which all of its connections have in common, so far.
struct TcpCounts {
    std::uint64_t sent = 0;  // segments
    std::uint64_t sent_again = 0;
    std::chrono::nanoseconds read{0};  // when, by the host's own steady clock
};
// Of the one that the process is in. Nothing: it is not there, or they cannot be read.
std::optional<TcpCounts> look_at_tcp(pid_t pid);

class LossNews {
public:
    using Duration = std::chrono::nanoseconds;

    static constexpr int stretches_until_said = 5;
    static constexpr double much = 0.01;     // of what is sent; as little as that halves TCP's rate
    static constexpr double little = 0.001;  // from there on it is over
    // Segments in each of them, so that a program that tries in vain to connect is none.
    static constexpr std::uint64_t least = 4;

    // A stretch of time in which ranks of a host have called collectives, and its counts at the end
    // of it. `key`: of the host, whose name may be another's, too. What is new, for the user;
    // mostly nothing, as where counts of the stretch's beginning are not known.
    std::optional<std::string> consider(std::uint64_t key, const std::string& name, Duration time,
                                        const TcpCounts& counts);

private:
    struct Course {
        std::optional<TcpCounts> last = {};
        int lossy_in_a_row = 0;
        int fine_in_a_row = 0;
        TcpCounts in_a_row = {};  // in these lossy ones
        Duration time{};
        bool is_said = false;
    };
    std::map<std::uint64_t, Course> courses_;
};

}  // namespace ddp::launcher
