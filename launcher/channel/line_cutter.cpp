// Only the last, unfinished line is kept; whatever ends in a newline goes out as it came.
#include "launcher/channel/line_cutter.hpp"

#include <utility>

namespace ddp::launcher {

std::string LineCutter::feed(std::string_view bytes) {
    const std::size_t last = bytes.rfind('\n');
    std::string complete;
    if (last != bytes.npos) {
        complete = std::exchange(rest_, {});
        complete.append(bytes.substr(0, last + 1));
        bytes.remove_prefix(last + 1);
        in_line_ = false;
    }
    rest_.append(bytes);
    if (rest_.size() >= limit_) {
        complete.append(std::exchange(rest_, {}));
        in_line_ = true;
    }
    return complete;
}

std::string LineCutter::finish() {
    if (rest_.empty() && !in_line_) return {};
    return feed("\n");
}

}  // namespace ddp::launcher
