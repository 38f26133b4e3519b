// The secret that the hosts of one job share: who knows it may take part, as any of the hosts.
// Invariant: its bytes are in no command line, variable or log, and in no message but a starter's
// (job_description.hpp); each copy of this object wipes them when it goes.
#pragma once

#include "launcher/options/options.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::launcher {

class JobToken {
public:
    static constexpr std::size_t size = 32;
    // The variable that names the file; workers do not get it.
    static constexpr const char* variable = "DDP_JOB_TOKEN_FILE";

    // 64 hex digits and at most one newline; nothing for any other text.
    static std::optional<JobToken> parse(std::string_view text);
    // From a regular file that is this user's or root's and that nobody else may read or write.
    // What a link leads to is what counts. Throws UsageError that names the file and says what to
    // do.
    static JobToken read(const std::string& path);

    // A new one. Throws SystemError.
    static JobToken make();

    JobToken(const JobToken&) = default;
    JobToken& operator=(const JobToken&) = default;
    ~JobToken();

    std::span<const std::uint8_t, size> bytes() const { return bytes_; }
    // As parse() reads it: for another host's launcher, over a channel that nobody else reads. The
    // caller wipes it.
    std::string text() const;
    friend bool operator==(const JobToken&, const JobToken&) = default;

private:
    JobToken() = default;

    std::array<std::uint8_t, size> bytes_{};
};

// Of the file that DDP_JOB_TOKEN_FILE names; nothing: the variable is not set. Throws UsageError.
std::optional<JobToken> job_token(const EnvLookup& environment);

}  // namespace ddp::launcher
