#include "testing/rank_link.hpp"

#include "base/frame.hpp"
#include "launch/worker_call.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

namespace ddp::testing {
namespace {

using base::UniqueFd;

constexpr const char* variable_name = "DDP_TEST_RANKS";

UniqueFd make_file(const char* name) {
    UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
    if (!file) throw SystemError("run_ranks: memfd_create", errno);
    return file;
}

void append(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written < 0 && errno != EINTR) throw SystemError("run_ranks: write values", errno);
        if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

std::vector<std::string> frames_in(int fd) {
    base::FrameReader reader(max_report_bytes);
    char bytes[65536];
    ssize_t got = 0;
    for (off_t at = 0; (got = ::pread(fd, bytes, sizeof bytes, at)) > 0; at += got) {
        reader.feed({bytes, static_cast<std::size_t>(got)});
    }
    std::vector<std::string> frames;
    while (auto frame = reader.next()) frames.push_back(std::move(*frame));
    return frames;
}

UniqueFd open_file(const std::string& path, int flags) {
    UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC));
    if (!file) throw SystemError("run_ranks: open " + path + ", a file of the test", errno);
    return file;
}

// What a rank was given, taken before main: nothing that the program starts may inherit it, and
// nothing that it prints before the call may be seen.
struct Inherited {
    std::string values;  // their paths
    std::string reports;
    UniqueFd out;  // stdout, while it is not to be seen
};

std::optional<Inherited> inherited_from_environment() {
    const char* text = std::getenv(variable_name);
    const char* rank = std::getenv("RANK");
    int pid = 0;
    int values = -1;
    int length = 0;
    if (!launching::before_body() || text == nullptr || rank == nullptr ||
        std::sscanf(text, "%d:%d:%n", &pid, &values, &length) != 2 || length == 0) {
        return std::nullopt;
    }
    std::string_view list(text + length);
    for (int before = std::atoi(rank); before > 0; --before) list.remove_prefix(list.find(',') + 1);
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd/";
    Inherited inherited{folder + std::to_string(values),
                        folder + std::string(list.substr(0, list.find(','))),
                        UniqueFd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))};
    const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (inherited.out && null) ::dup2(null.get(), STDOUT_FILENO);
    ::unsetenv(variable_name);
    return inherited;
}

std::optional<Inherited>& inherited() {
    static auto* const one = new std::optional<Inherited>(inherited_from_environment());
    return *one;
}

[[maybe_unused]] const bool taken_before_main = (inherited(), true);

}  // namespace

RankLinks::RankLinks(int ranks, const std::vector<std::string>& values)
    : values_(make_file("ddp-test-values")) {
    std::string bytes;
    for (const std::string& value : values) base::append_frame(bytes, value);
    append(values_.get(), bytes);
    for (int rank = 0; rank < ranks; ++rank) reports_.push_back(make_file("ddp-test-reports"));
}

std::string RankLinks::variable() const {
    std::string text = std::string(variable_name) + "=" + std::to_string(::getpid()) + ":" +
                       std::to_string(values_.get()) + ":";
    for (const UniqueFd& file : reports_) text += std::to_string(file.get()) + ",";
    return text;
}

std::vector<std::string> RankLinks::reports(int rank) const {
    return frames_in(reports_[static_cast<std::size_t>(rank)].get());
}

bool is_waiting_rank() { return inherited().has_value() && launching::before_body(); }

std::string value_of_test(std::size_t number) {
    const auto values = frames_in(open_file(inherited()->values, O_RDONLY).get());
    if (number < values.size()) return values[number];
    throw UsageError("made_once: the test had made " + std::to_string(values.size()) +
                     " values before it started this rank, which asks for number " +
                     std::to_string(number + 1) + "; it must take the same way in a rank");
}

UniqueFd begin_body() {
    std::fflush(stdout);
    std::cout.flush();
    if (inherited()->out) ::dup2(inherited()->out.get(), STDOUT_FILENO);
    inherited()->out.reset();
    return open_file(inherited()->reports, O_WRONLY | O_APPEND);
}

}  // namespace ddp::testing
