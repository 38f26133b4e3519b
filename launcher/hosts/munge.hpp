// MungeCredential: a job's token in a form that only processes of the same user can read, on hosts
// whose munged share a key: a coordinator may hand it to anybody. libmunge is loaded for it.
// Each call asks the munged of this host, which takes a millisecond.
#pragma once

#include "launcher/hosts/job_token.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

// Whether this host has libmunge and a munged that answers.
bool has_munge();

// For this process's user alone. Throws Error with munge's words.
std::string encode_credential(const JobToken& token);

// The token. Throws UsageError that says why the credential is none of this user's.
JobToken decode_credential(std::string_view credential);

}  // namespace ddp::launcher
