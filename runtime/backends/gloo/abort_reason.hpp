// AbortReason: why a group of ranks over Gloo ended: found once, by the rank that sees it first,
// and sent to the others as an AbortNotice before the connections close. A closed connection alone
// says little: the rank behind it may have closed it because of a third. Invariant: a group has one
// reason, the first.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ddp::gloo {

enum class AbortKind : std::uint32_t {
    left,       // in the regular way: the rank has done all it was asked to
    peer_died,  // PeerError
    timed_out,  // TimeoutError
    misused,    // UsageError: calls or sizes differ
    broken,     // BackendError
};

struct AbortReason {
    AbortKind kind = AbortKind::left;
    int culprit = 0;  // rank in the group
    std::string text;

    // Throws the exception of this kind; a PeerError names `job_rank`.
    [[noreturn]] void raise(int job_rank) const;
};

// What travels: the last message of a rank to each of the others.
struct AbortNotice {
    AbortKind kind;
    std::int32_t culprit;
    std::array<char, 1016> text;
};

AbortNotice encode(const AbortReason& reason);
AbortReason decode(const AbortNotice& notice);

}  // namespace ddp::gloo
