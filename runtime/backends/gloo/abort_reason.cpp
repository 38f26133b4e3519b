#include "backends/gloo/abort_reason.hpp"

#include <ddp/error.hpp>

#include <cstring>

namespace ddp::gloo {

void Verdict::raise(int job_rank) const {
    switch (reason) {
        case Reason::left:
        case Reason::peer_died:
            throw PeerError(job_rank, text);
        case Reason::timed_out:
            throw TimeoutError(text, job_rank);
        case Reason::misused:
            throw UsageError(text);
        case Reason::broken:
            break;
    }
    throw BackendError("gloo", 0, text);
}

LastWords encode(const Verdict& verdict) {
    LastWords words{};
    words.reason = verdict.reason;
    words.culprit = verdict.culprit;
    verdict.text.copy(words.text.data(), words.text.size() - 1);
    return words;
}

Verdict decode(const LastWords& words) {
    const std::size_t length = ::strnlen(words.text.data(), words.text.size());
    return {words.reason, words.culprit, std::string(words.text.data(), length)};
}

}  // namespace ddp::gloo
