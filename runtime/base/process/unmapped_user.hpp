// In a user namespace that does not have all users (user_namespaces(7)) the kernel shows those that
// it lacks as one.
#pragma once

#include <sys/types.h>

namespace ddp::base {

// Whether who is shown as this user may be anybody.
bool stands_for_many(uid_t user);

}  // namespace ddp::base
