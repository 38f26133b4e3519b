// Which Python runs a script: the one that the user's environment is about. torchrun is a script of
// one interpreter; ddp-launch is of none, so that it looks for whose it was meant to be.
#pragma once

#include "launcher/options/options.hpp"

#include <string>

namespace ddp::launcher {

// $PYTHON_EXEC; else python3 or python beside ddp-launch, when that lies in the bin folder of a
// virtual environment (or conda's); else in $VIRTUAL_ENV/bin; else "python3", along PATH.
// `called_as`: argv[0] of ddp-launch; no link in it is followed, as an environment may link to an
// installed file.
std::string find_interpreter(const std::string& called_as, const EnvLookup& environment);

}  // namespace ddp::launcher
