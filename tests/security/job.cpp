#include "security/job.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace ddp::security_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* setpriv = "/usr/bin/setpriv";
constexpr const char* prlimit = "/usr/bin/prlimit";

Launch::Words as_user(uid_t user) {
    const std::string id = std::to_string(user);
    return {"--reuid=" + id, "--regid=" + id, "--clear-groups"};
}

const TemporaryFolder& given_to(uid_t user, const TemporaryFolder& folder) {
    EXPECT_EQ(::chown(folder.path().c_str(), user, user), 0);
    return folder;
}

// Closed to nobody: workers may be neither root nor the launcher's user.
const TemporaryFolder& opened(const TemporaryFolder& folder) {
    EXPECT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    return folder;
}

}  // namespace

Job::Job(const JobSettings& settings)
    : settings_(settings),
      launch_(given_to(settings.user, opened(folder_)), words(),
              {.program = settings.user != 0                ? setpriv
                          : !settings.address_space.empty() ? prlimit
                                                            : ""}) {
    opened(gates_);
}

Launch::Words Job::words() const {
    Launch::Words words;
    if (settings_.user != 0) {
        words = as_user(settings_.user);
        words.emplace_back(DDP_LAUNCH);
    } else if (!settings_.address_space.empty()) {
        words = {"--as=" + settings_.address_space, DDP_LAUNCH};
    }
    words.push_back("--nproc-per-node=" + std::to_string(settings_.ranks));
    words.insert(words.end(), settings_.options.begin(), settings_.options.end());
    words.emplace_back("--");
    words.insert(words.end(), settings_.before_program.begin(), settings_.before_program.end());
    words.insert(words.end(), {DDP_SECURITY_WORKER, "reduce", gates_.path()});
    return words;
}

void Job::open_gate(const std::string& name) const {
    EXPECT_TRUE(std::ofstream(gates_.path() + "/" + name)) << name;
}

std::optional<std::uint16_t> Job::wait_until_ready() {
    if (!launch_.wait_for_output("ready", settings_.ranks)) return std::nullopt;
    const std::string& out = launch_.out();
    const std::string before = "port ";
    return static_cast<std::uint16_t>(std::stoi(out.substr(out.find(before) + before.size())));
}

std::string Job::store_socket() const {
    const std::string& out = launch_.out();
    const std::string before = "socket ";
    const std::size_t begin = out.find(before) + before.size();
    return out.substr(begin, out.find('.', begin) - begin);
}

bool Job::wait_until_joined() { return launch_.wait_for_output("joined rank", settings_.ranks); }

std::vector<std::uint64_t> Job::mapped_memory() const {
    std::vector<std::uint64_t> inodes;
    std::istringstream lines(launch_.out());
    for (std::string line; std::getline(lines, line);) {
        const std::string before = "memory ";
        const std::size_t found = line.find(before);
        if (found != line.npos) inodes.push_back(std::stoull(line.substr(found + before.size())));
    }
    return inodes;
}

bool can_run_programs(uid_t user) {
    Stranger visitor(user, [] {
        if (::access(DDP_LAUNCH, X_OK) != 0 || ::access(DDP_SECURITY_WORKER, X_OK) != 0 ||
            ::access(setpriv, X_OK) != 0) {
            throw std::runtime_error("cannot run what was built here");
        }
    });
    return visitor.wait();
}

void expect_right(const LaunchResult& result, int ranks) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_THAT(result.out, HasSubstr("right rank " + std::to_string(rank)));
        EXPECT_THAT(result.out, HasSubstr("joined rank " + std::to_string(rank) + " by shm"));
    }
}

}  // namespace ddp::security_test
