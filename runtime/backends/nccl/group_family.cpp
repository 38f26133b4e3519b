#include "backends/nccl/group_family.hpp"

#include "base/log.hpp"
#include "contract/exit_code.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ddp::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto longest_leave = std::chrono::milliseconds{2500};

std::string text_of(std::exception_ptr error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& known) {
        return known.what();
    }
}

}  // namespace

std::chrono::milliseconds abort_limit() {
    const char* const text = std::getenv("DDP_NCCL_ABORT_TIMEOUT");
    if (text == nullptr || *text == '\0') return 60s;
    const std::string_view digits(text);
    int seconds = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), seconds);
    if (error == std::errc() && end == digits.end() && seconds > 0) {
        return std::chrono::seconds(seconds);
    }
    throw UsageError("DDP_NCCL_ABORT_TIMEOUT=" + std::string(digits) +
                     " is no number of seconds above 0");
}

GroupFamily::GroupFamily(std::string name, std::chrono::milliseconds limit,
                         std::shared_ptr<Communicator> first)
    : name_(std::move(name)), limit_(limit), communicators_{std::move(first)} {}

GroupFamily::~GroupFamily() {
    if (group_abort_->is_set()) return;  // the groups have waited until it was done
    Communicator& all = *communicators_.front();
    // What is orderly gets so much of the limit; then NCCL aborts, which may take long.
    const auto patience = std::min(limit_ / 2, longest_leave);
    if (all.leave(patience)) return;
    all.cancel();
    if (all.abort(all.is_in_graphs() ? patience : limit_ - patience) && !all.is_in_graphs()) return;
    base::log_warn(
        "nccl",
        name_ + (all.is_in_graphs() ? ": a graph outlives its group, whose memory NCCL keeps "
                                      "as long; destroy graphs first"
                                    : ": NCCL did not let go of the group within " +
                                          base::to_string(limit_) + "; its memory stays in use"));
}

void GroupFamily::keep(std::shared_ptr<Communicator> communicator) {
    const std::lock_guard lock(mutex_);
    communicators_.push_back(std::move(communicator));
}

// One that comes late has failed already, and its ranks have yet to hear of it.
void GroupFamily::join(Member& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
    if (group_abort_->is_set()) member.tell_others(Watchdog::Finder::this_rank);
}

void GroupFamily::part(Member& member) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
}

// Says what was in flight.
std::string GroupFamily::fail_members(Watchdog::Finder finder) noexcept {
    std::string aborted;
    communicators_.front()->cancel();
    for (Member* const member : members_) {
        for (const std::string& operation : member->abort_operations()) {
            aborted += (aborted.empty() ? "" : "; ") + operation;
        }
    }
    for (Member* const member : members_) member->tell_others(finder);
    return aborted.empty() ? "nothing" : aborted;
}

void GroupFamily::end(std::exception_ptr error, Watchdog::Finder finder) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!group_abort_->set(error)) return;
        const std::string aborted = fail_members(finder);
        base::log_error(
            "nccl", name_ + " ends " +
                        (communicators_.size() == 1 ? "the group: "
                                                    : "all groups that share with one another: ") +
                        text_of(error) + "; in flight: " + aborted);
    }
    Communicator& all = *communicators_.front();
    if (!all.abort(limit_)) {
        base::log_error("nccl", name_ + ": NCCL could not be aborted within " +
                                    base::to_string(limit_) +
                                    "; the process ends itself (exit code 83)");
        ::_exit(contract::exit_could_not_abort);
    }
    const std::lock_guard lock(mutex_);
    if (all.is_in_graphs()) {  // then NCCL has not waited for what it has told to end
        const base::Deadline deadline = base::Deadline::after(limit_);
        for (Member* const member : members_) member->finish_own_stream(deadline);
    }
    group_abort_->mark_aborted();
}

}  // namespace ddp::nccl
