// Stands in for ssh to a host where ddp-launch starts at once: after 0.2 s it greets as ddp-launch
// does that is started so, and ends.
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

int main() {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::string beginning = "ddp-launch begins ";
    std::string said;
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(STDIN_FILENO, bytes.data(), bytes.size())) > 0;) {
        said.append(bytes.data(), static_cast<std::size_t>(got));
        const std::size_t at = said.find(beginning);
        const std::size_t end = said.find_first_not_of("0123456789abcdef-", at + beginning.size());
        if (at == said.npos || end == said.npos) continue;
        const std::string line = said.substr(at, end - at) + "\n";
        const auto whole = static_cast<ssize_t>(line.size());
        const bool is_said = ::write(STDOUT_FILENO, line.data(), line.size()) == whole &&
                             ::write(STDERR_FILENO, line.data(), line.size()) == whole;
        return is_said ? 0 : 1;
    }
    return 1;
}
