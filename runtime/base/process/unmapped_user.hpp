// In a user namespace that does not map all users the kernel shows the unmapped ones as one user,
// /proc/sys/kernel/overflowuid (user_namespaces(7)).
#pragma once

#include <sys/types.h>

namespace ddp::base {

// Whether this number may stand for any unmapped user.
bool stands_for_many(uid_t user);

}  // namespace ddp::base
