// Whose memory a rank maps: a stranger who squats the key of the group's shared region, with memory
// and sockets of its own laid out as the real ones are, gets nothing mapped, and the job goes on.
#include "backends/shm/region/shared_region.hpp"
#include "base/unique_fd.hpp"
#include "security/job.hpp"
#include "security/requests.hpp"
#include "store/wire_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

namespace ddp::security_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string group_prefix = "/ddp/attempt_0/group_0/";
const std::string region_key = group_prefix + "shm/region";

// What the test can know of a squatter's doings.
struct Squat {
    std::atomic<std::uint64_t> inode;   // of its memory
    std::atomic<std::uint64_t> tries;   // to set the key
    std::atomic<std::uint32_t> fooled;  // ranks that have written into its memory
};

enum class Bait {
    memory,    // its own process and descriptor
    socket,    // no descriptor to be found: its socket gives the memory to everybody
    victim,    // rank 0's process, a descriptor of the stranger's choice, and its socket
    nonsense,  // no address at all
};
constexpr int baits = 4;

base::UniqueFd listen_at(const std::string& abstract_name) {
    base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, abstract_name.data(), abstract_name.size());
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + abstract_name.size());
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0) {
        throw std::runtime_error("squat: listen");
    }
    return fd;
}

void give_descriptor(int socket, int descriptor) {
    char byte = 'r';
    iovec data{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const ancillary = CMSG_FIRSTHDR(&message);
    ancillary->cmsg_level = SOL_SOCKET;
    ancillary->cmsg_type = SCM_RIGHTS;
    ancillary->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(ancillary), &descriptor, sizeof descriptor);
    ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// What rank 0 writes in front of the address: see make_backend.cpp.
std::string host_id() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    return std::string(name.data()) + "/" + boot_id;
}

// Memory of the product's own making, so that nothing but its owner is wrong with it.
class Squatter {
public:
    Squatter(int ranks, Squat& seen)
        : seen_(seen),
          cores_(static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U))),
          region_(shm::SharedRegion::create(ranks, shm::make_tuning(ranks, cores_, ""))),
          socket_(listen_at(name_)) {
        std::istringstream address(region_->address());
        address >> pid_ >> fd_ >> cookie_;
        struct stat status {};
        if (::fstat(fd_, &status) != 0) throw std::runtime_error("squat: stat");
        seen.inode = status.st_ino;
    }

    // Until the process is killed.
    [[noreturn]] void squat(std::uint16_t port, Bait bait, pid_t victim) {
        const std::string address = host_id() + "\n" + address_for(bait, victim);
        const std::string set = store_test::u8(1) + store_test::str(region_key);
        base::UniqueFd store;
        for (const timespec pause{0, 100'000};; ::nanosleep(&pause, nullptr)) {
            give_and_look();
            std::string bytes = set + store_test::str(address);
            if (!store) {
                store.reset(connect_to(port));
                bytes.insert(0, store_test::hello);
            }
            const ssize_t sent = ::send(store.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent == static_cast<ssize_t>(bytes.size())) {
                ++seen_.tries;
            } else {
                store.reset();  // refused: once more
            }
        }
    }

private:
    std::string address_for(Bait bait, pid_t victim) const {
        const auto address = [&](pid_t pid, int fd) {
            return std::to_string(pid) + " " + std::to_string(fd) + " " + std::to_string(cookie_) +
                   " " + name_;
        };
        switch (bait) {
            case Bait::memory:
                return address(pid_, fd_);
            case Bait::socket:
                return address(pid_, 1 << 20);
            case Bait::victim:
                return address(victim, 1 << 20);
            case Bait::nonsense:
                break;
        }
        return "17 ? !";
    }

    void give_and_look() {
        while (
            const base::UniqueFd peer{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
            give_descriptor(peer.get(), fd_);
        }
        std::uint32_t fooled = 0;
        for (int rank = 0; rank < region_->ranks(); ++rank) {
            if (region_->block(rank).pid.load() != 0) ++fooled;
        }
        seen_.fooled = fooled;
    }

    Squat& seen_;
    int cores_;
    std::shared_ptr<shm::SharedRegion> region_;
    std::string name_ = "ddp-squatted-" + std::to_string(::getpid());
    base::UniqueFd socket_;
    pid_t pid_ = 0;
    int fd_ = -1;
    std::uint64_t cookie_ = 0;
};

class ForeignMemory : public ::testing::Test {
protected:
    void SetUp() override { DDP_NEEDS_ROOT(); }

    // Until the squatter has tried several times.
    static void wait_for_tries(const Squat& seen) {
        const std::uint64_t wanted = seen.tries + 3;
        const auto deadline = base::Deadline::after(patience);
        while (seen.tries < wanted && !deadline.passed()) ::poll(nullptr, 0, 1);
        EXPECT_GE(seen.tries, wanted);
    }

    static void expect_nothing_mapped(const JobSettings& settings, Bait bait) {
        Job job(settings);
        const auto port = job.wait_until_ready();
        ASSERT_TRUE(port) << job.wait().err;
        const auto agent = job.launch().wait_for_agent();
        ASSERT_TRUE(agent);
        const auto ranks = launcher::testing::children_now(*agent);
        ASSERT_FALSE(ranks.empty());
        const Shared<Squat> seen;
        const Stranger squatter(
            nobody, [&] { Squatter(settings.ranks, *seen).squat(*port, bait, ranks.front()); });
        wait_for_tries(*seen);
        job.let_join();
        EXPECT_TRUE(job.wait_until_joined());
        EXPECT_THAT(job.mapped_memory(), Not(Contains(seen->inode.load())));
        job.let_end();
        const LaunchResult result = job.wait();
        EXPECT_EQ(seen->fooled, 0U) << "ranks wrote into a stranger's memory";
        if (is_closed_to_strangers(settings)) {
            expect_right(result, settings.ranks);
        } else {
            EXPECT_EQ(result.exit_code, 0) << result.err;
        }
    }

    static bool is_closed_to_strangers(const JobSettings& settings) {
        const auto& options = settings.options;
        return std::find(options.begin(), options.end(), "--store-peers=any") == options.end();
    }

    static void attack_often(int runs) {
        const bool others = can_run_programs(another_user);
        for (int run = 0; run < runs && !HasFailure(); ++run) {
            // Each bait with each size and each user, in 16 runs.
            const auto bait = static_cast<Bait>(run % baits);
            const int ranks = run / baits % 2 == 0 ? 2 : 4;
            const uid_t user = others && run / (2 * baits) % 2 == 0 ? another_user : 0;
            SCOPED_TRACE("run " + std::to_string(run) + ", " + std::to_string(ranks) +
                         " ranks of user " + std::to_string(user) + ", bait " +
                         std::to_string(static_cast<int>(bait)));
            expect_nothing_mapped({.ranks = ranks, .user = user}, bait);
        }
    }
};

TEST_F(ForeignMemory, IsNotMappedByAJobUnderAttack) { attack_often(4); }

TEST_F(ForeignMemory, SoakIsNotMappedByAHundredJobsUnderAttack) { attack_often(100); }

// The second line: whoever may speak to the store cannot lead a rank to another user's memory.
TEST_F(ForeignMemory, IsNotMappedEvenWhereStrangersAreServed) {
    for (const Bait bait : {Bait::memory, Bait::socket}) {
        const JobSettings open{.options = {"--store-peers=any"}};
        expect_nothing_mapped(open, bait);
    }
}

// The attack above is one: this is the key that ranks meet by.
TEST_F(ForeignMemory, IsOfferedUnderTheKeyThatRanksRead) {
    Job job({});
    const auto port = job.wait_until_ready();
    ASSERT_TRUE(port) << job.wait().err;
    job.let_join();
    ASSERT_TRUE(job.wait_until_joined());
    Friend witness(*port);
    EXPECT_THAT(witness.keys(), Contains(region_key));
    EXPECT_THAT(witness.get(region_key), HasSubstr(host_id() + "\n"));
    job.let_end();
    expect_right(job.wait(), 2);
}

}  // namespace
}  // namespace ddp::security_test
