// 200 connections to the store of a real ddp-launch, each of which takes as much of the agent's
// memory as it can get, or garbage without end: the agent stays small, its log quiet, and
// 02_all_reduce computes what it computes elsewhere.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "launcher/launch_fixture.hpp"
#include "store/wire_bytes.hpp"

namespace ddp::launcher::testing {
namespace {

using namespace store_test;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t connections = 200;
constexpr std::size_t allowed_kib = 64 * 1024;

std::size_t kib_of(pid_t pid, const std::string& what) {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(what)) return std::stoul(line.substr(what.size()));
    }
    return 0;
}

// One connection that sends what it has, whenever the store takes it, and reads nothing.
class Attacker {
public:
    Attacker(std::uint16_t port, std::string bytes)
        : Attacker(port, std::make_shared<std::string>(std::move(bytes))) {}
    Attacker(std::uint16_t port, std::shared_ptr<std::string> bytes) : bytes_(std::move(bytes)) {
        int error = 0;
        fd_ = base::try_connect_tcp("127.0.0.1", port, base::Deadline::after(seconds{10}), error);
        EXPECT_TRUE(fd_) << "errno " << error;
        const int small = 16 * 1024;
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
    }
    // Whether it got rid of something.
    bool push() {
        const auto count = ::send(fd_.get(), bytes_->data() + sent_, bytes_->size() - sent_,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) sent_ += static_cast<std::size_t>(count);
        return count > 0;
    }
    std::string read(std::size_t count) {
        std::string bytes;
        const auto deadline = base::Deadline::after(seconds{20});
        while (bytes.size() < count && !deadline.passed()) {
            push();
            std::string part(count - bytes.size(), '\0');
            const auto got = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
            if (got == 0) break;
            if (got > 0) bytes.append(part.data(), static_cast<std::size_t>(got));
        }
        return bytes;
    }
    void add(const std::string& bytes) { *bytes_ += bytes; }

private:
    base::UniqueFd fd_;
    std::shared_ptr<std::string> bytes_;  // of many connections
    std::size_t sent_ = 0;
};

// Until nobody has got rid of anything for half a second.
void push_all(std::vector<Attacker>& attackers) {
    auto quiet = base::Deadline::after(milliseconds{500});
    const auto deadline = base::Deadline::after(seconds{60});
    while (!quiet.passed() && !deadline.passed()) {
        for (auto& attacker : attackers) {
            if (attacker.push()) quiet = base::Deadline::after(milliseconds{500});
        }
        ::usleep(1000);  // the store needs the processor, too
    }
}

class AttackedStore : public LaunchTest {
protected:
    AttackedStore() {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    void SetUp() override {
        // The workers begin when the file is there.
        const std::string script = "echo port=$MASTER_PORT=; until [ -e '" + start_ +
                                   "' ]; do sleep 0.05; done; exec '" + DDP_EXAMPLES_DIR +
                                   "/02_all_reduce'";
        job_.emplace(folder_, Launch::Words{"--nproc-per-node=2", "--", "sh", "-c", script});
        ASSERT_TRUE(job_->wait_for_output("=\n")) << job_->out();
        const auto& out = job_->out();
        port_ = static_cast<std::uint16_t>(std::stoi(out.substr(out.find("port=") + 5)));
        agent_ = job_->wait_for_agent().value_or(-1);
        ASSERT_GT(agent_, 0);
        first_kib_ = kib_of(agent_, "VmRSS:");
    }
    std::vector<Attacker> attack(std::string bytes) const {
        const auto shared = std::make_shared<std::string>(std::move(bytes));
        std::vector<Attacker> attackers;
        for (std::size_t i = 0; i < connections; ++i) attackers.emplace_back(port_, shared);
        push_all(attackers);
        return attackers;
    }
    void expect_small_agent(std::size_t content_bytes) {
        if (!memory_is_measured) return;
        const auto most = allowed_kib + content_bytes / 1024;
        std::cout << "agent: " << first_kib_ << " KiB before, " << kib_of(agent_, "VmRSS:")
                  << " now, peak " << kib_of(agent_, "VmHWM:") << ", allowed " << most << std::endl;
        EXPECT_LE(kib_of(agent_, "VmRSS:"), most);
        EXPECT_LE(kib_of(agent_, "VmHWM:"), most);
    }
    LaunchResult expect_right_job() {
        std::ofstream{start_}.close();
        auto result = job_->wait();
        ::unlink(start_.c_str());
        EXPECT_EQ(result.exit_code, 0) << result.err;
        for (const char* line : {"rank 0 of 2: sum [3, 30, 300]", "rank 1 of 2: sum [3, 30, 300]",
                                 "rank 1 of 2: gathered [1, 10, 100, 2, 20, 200]"}) {
            EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
        }
        return result;
    }

    const std::string start_ = folder_.path() + "/start";
    std::optional<Launch> job_;
    std::uint16_t port_ = 0;
    pid_t agent_ = -1;
    std::size_t first_kib_ = 0;
};

TEST_F(AttackedStore, StaysSmallWhenRepliesAreNotRead) {
    Attacker setter{port_, hello + nothing + u8(1) + str("k") + str(std::string(8 * mib, 'v')) +
                               u8(5) + u64(1) + str("k")};
    ASSERT_EQ(setter.read(1), u8(0));
    std::string request = hello + nothing + u8(10) + u64(7);
    for (int i = 0; i < 7; ++i) request += str("k");
    const auto attackers = attack(request);
    expect_small_agent(8 * mib);
    expect_right_job();
}

TEST_F(AttackedStore, StaysSmallWhenFirstRequestsNeverEnd) {
    const auto attackers = attack(hello + u8(11) + u64(8) + str("k") + str(std::string(mib, 'x')));
    expect_small_agent(0);
    expect_right_job();
}

TEST_F(AttackedStore, SoakStaysSmallWhenLaterRequestsNeverEnd) {
    std::string request = hello + nothing + u8(11) + u64(8);
    for (int i = 0; i < 2; ++i) request += str("k") + str(std::string(8 * mib, 'x'));
    const auto attackers = attack(request);
    expect_small_agent(0);
    expect_right_job();
}

TEST_F(AttackedStore, StaysSmallWhenWatchersDoNotRead) {
    auto attackers = attack(u8(7) + str("w"));
    Attacker setter{port_, hello + nothing};
    for (const char* value : {"x", "y", "z"}) {
        setter.add(u8(1) + str("w") + str(std::string(8 * mib, value[0])) + u8(5) + u64(1) +
                   str("w"));
        ASSERT_EQ(setter.read(1), u8(0));
    }
    expect_small_agent(8 * mib);
    expect_right_job();
}

TEST_F(AttackedStore, SoakStaysSmallWhenManyLongKeysAreWaitedFor) {
    std::string request = hello + nothing + u8(6) + u64(900);
    for (int key = 0; key < 900; ++key) {
        auto name = std::to_string(key);
        name.resize(7900, 'z');
        request += str(name);
    }
    const auto attackers = attack(std::move(request));
    expect_small_agent(0);
    expect_right_job();
}

TEST_F(AttackedStore, AFullMapSaysWhoFilledItAndRanksHaveAPartOfTheirOwn) {
    Attacker filler{port_, hello + nothing};
    const std::string value(mib, 'v');
    for (int i = 0; i < 230; ++i) filler.add(u8(1) + str(std::to_string(i)) + str(value));
    filler.add(u8(7));
    EXPECT_EQ(filler.read(8), "");  // closed
    expect_small_agent(224 * mib);
    ASSERT_TRUE(job_->wait_for_error("store: full, more than"));
    expect_right_job();  // of the eighth that is kept for its ranks
}

TEST_F(AttackedStore, SoakLogsLittleWhenGarbageComesWithoutEnd) {
    constexpr int flood = 100'000;
    const auto begin = base::Deadline::Clock::now();
    const auto patient = base::Deadline::after(seconds{300});
    int came = 0;
    for (bool open = true; open && !patient.passed(); ++came) {
        if (came == flood) std::ofstream{start_}.close();  // and on, until the job has ended
        int error = 0;
        const auto fd = base::try_connect_tcp("127.0.0.1", port_, patient, error);
        open = static_cast<bool>(fd);
        const auto bytes = came % 2 == 0 ? "GET / HTTP/1.1\r\n\r\n" : hello + nothing + u8(99);
        if (open) ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    EXPECT_GE(came, flood);
    const auto time = base::Deadline::Clock::now() - begin;
    const auto result = expect_right_job();
    const auto lines = std::count(result.err.begin(), result.err.end(), '\n');
    const auto seconds_taken = std::chrono::duration_cast<seconds>(time).count() + 1;
    std::cout << lines << " lines in " << seconds_taken << " s" << std::endl;
    EXPECT_LE(lines, 10 * seconds_taken);
}

}  // namespace
}  // namespace ddp::launcher::testing
