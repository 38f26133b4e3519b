// How a process ended, in the launcher's own words.
#pragma once

#include "contract/exit_status.hpp"

namespace ddp::launcher {

using contract::exit_status_of;
using contract::ExitStatus;
using contract::signal_name;
using contract::to_string;

}  // namespace ddp::launcher
