// In a user namespace that does not have all users (user_namespaces(7)) the kernel shows those that
// it lacks as one. Who is shown as that one may be anybody.
#pragma once

#include <sys/types.h>

#include <optional>

namespace ddp::base {

// Its number; nothing where every user has a number of its own.
std::optional<uid_t> unmapped_user();

}  // namespace ddp::base
