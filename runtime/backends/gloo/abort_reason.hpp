// Why a group of ranks over Gloo ended: found once, by the rank that sees it first, and told to the
// others before the connections close. A closed connection alone says little: the rank behind it
// may have closed it because of a third.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ddp::gloo {

enum class Reason : std::uint32_t {
    left,       // in the regular way: the rank has done all it was asked to
    peer_died,  // PeerError
    timed_out,  // TimeoutError
    misused,    // UsageError: calls or sizes differ
    broken,     // BackendError
};

struct Verdict {
    Reason reason = Reason::left;
    int culprit = 0;  // rank in the group
    std::string text;

    // Throws what the reason stands for; a PeerError names `job_rank`.
    [[noreturn]] void raise(int job_rank) const;
};

// What travels: the last thing that a rank says to each of the others.
struct LastWords {
    Reason reason;
    std::int32_t culprit;
    std::array<char, 1016> text;
};

LastWords encode(const Verdict& verdict);
Verdict decode(const LastWords& words);

}  // namespace ddp::gloo
