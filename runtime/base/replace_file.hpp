// A small file that readers see whole or not at all: written beside its place, then renamed.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddp::base {

// The new file has that mode; one of that name is replaced, not followed if it is a link. Returns 0
// or an errno; the old file is untouched then and nothing is left beside it. Throws SystemError
// where the kernel has no random numbers.
int replace_file(const std::string& path, std::string_view text, ::mode_t mode = 0600);
// The same with a name that the caller, who may be killed meanwhile, chooses for the file until it
// is whole.
int replace_file(const std::string& path, std::string_view text, ::mode_t mode,
                 const std::string& temporary);

}  // namespace ddp::base
