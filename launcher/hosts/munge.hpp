// MUNGE credentials: a job's token in a form that only processes of the same user can read, on
// hosts whose munged share a key: a coordinator may hand one to anybody. libmunge is loaded for
// them. Each call asks the munged of this host, which takes a millisecond.
#pragma once

#include "launcher/hosts/job_token.hpp"

#include <string>
#include <string_view>

namespace ddp::launcher {

// Whether this host has libmunge and a munged that answers.
bool has_munge();

// For this process's user alone. `job`: which of the user's jobs it is for, in one line. Throws
// Error with munge's words.
std::string encode_credential(const JobToken& token, const std::string& job);

// The token. Throws UsageError that says why the credential is none of this user's for this job.
JobToken decode_credential(std::string_view credential, const std::string& job);

}  // namespace ddp::launcher
