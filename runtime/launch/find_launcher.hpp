// Where ddp-launch is: what the environment says, what the caller says, beside this program, PATH.
#pragma once

#include <string>

namespace ddp::launching {

// What the search depends on; given, so that it can be tested.
struct LauncherSearch {
    std::string from_environment;  // DDP_LAUNCH
    std::string given;             // LaunchOptions::launcher
    std::string own_folder;        // of this program
    std::string search_path;       // PATH
};

LauncherSearch launcher_search(const std::string& given);

// Throws UsageError that names every place, or the one that DDP_LAUNCH names wrongly.
std::string find_launcher(const LauncherSearch& search);

// The file of this program; "/path (deleted)" when it is gone or replaced. Throws SystemError.
std::string own_program();

}  // namespace ddp::launching
