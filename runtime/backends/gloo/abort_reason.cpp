#include "backends/gloo/abort_reason.hpp"

#include <ddp/error.hpp>

#include <cstring>

namespace ddp::gloo {

void AbortReason::raise(int job_rank) const {
    switch (kind) {
        case AbortKind::left:
        case AbortKind::peer_died:
            throw PeerError(job_rank, text);
        case AbortKind::timed_out:
            throw TimeoutError(text, job_rank);
        case AbortKind::misused:
            throw UsageError(text);
        case AbortKind::broken:
            break;
    }
    throw BackendError("gloo", 0, text);
}

AbortNotice encode(const AbortReason& reason) {
    AbortNotice notice{};
    notice.kind = reason.kind;
    notice.culprit = reason.culprit;
    reason.text.copy(notice.text.data(), notice.text.size() - 1);
    return notice;
}

AbortReason decode(const AbortNotice& notice) {
    const std::size_t length = ::strnlen(notice.text.data(), notice.text.size());
    return {notice.kind, notice.culprit, std::string(notice.text.data(), length)};
}

}  // namespace ddp::gloo
