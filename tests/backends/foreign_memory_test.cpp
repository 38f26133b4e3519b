// Whose memory a rank maps and whose process it reads: what others leave in the store, behind
// descriptors, on sockets and in the region itself, each refused by name before a byte of it is
// used. Other users are played by children that change theirs (as root), user namespaces and
// containers also by a kernel that says what it is told to.
#include "backends/selection/backend_support.hpp"
#include "backends/shm/shm_backend.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp::shm;
using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::backends::Direction;
using ddp::base::Deadline;
using ddp::base::UniqueFd;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t page = 4096;
constexpr uid_t stranger = 65534;

Deadline soon() { return Deadline::after(10s); }

template <class Body>
std::string refusal_of(const Body& body) {
    try {
        body();
    } catch (const ddp::UsageError& error) {
        return error.what();
    } catch (const ddp::SystemError& error) {
        return error.what();
    }
    return "nothing was refused";
}

// A kernel that says what it is told to, and else the truth.
struct FakeKernel : HostKernel {
    std::optional<uid_t> me, owner_of_memory, owner_of_processes;
    bool hides_processes = false;
    std::optional<uid_t> many;  // whom that one user stands for
    int error_of_copies = 0;

    uid_t user() const override { return me.value_or(HostKernel::user()); }
    bool stands_for_many(uid_t user) const override { return user == many; }
    int describe(int fd, struct stat& status) const override {
        const int error = HostKernel::describe(fd, status);
        const auto& owner = S_ISDIR(status.st_mode) ? owner_of_processes : owner_of_memory;
        if (owner) status.st_uid = *owner;
        return error;
    }
    std::optional<uid_t> user_of(pid_t process) const override {
        if (hides_processes) return std::nullopt;
        return owner_of_processes ? owner_of_processes : HostKernel::user_of(process);
    }
    ssize_t read_memory(pid_t process, const iovec& local, const iovec& remote) const override {
        if (error_of_copies == 0) return HostKernel::read_memory(process, local, remote);
        errno = error_of_copies;
        return -1;
    }
};

// A child process that runs `body` and then stays until the object goes; what `body` returns comes
// back, with a descriptor if it gives one.
class Child {
public:
    struct Given {
        std::string text;
        int fd = -1;
    };
    explicit Child(const std::function<Given()>& body) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            Given given;
            try {
                given = body();
            } catch (const std::exception& error) {
                given.text = std::string("threw: ") + error.what();
            }
            send(ends[1], given);
            for (;;) ::pause();
        }
        const UniqueFd other(ends[1]);
        socket_.reset(ends[0]);
        receive();
    }
    ~Child() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    pid_t pid() const { return pid_; }
    const std::string& text() const { return text_; }
    int fd() const { return fd_.get(); }

private:
    union Control {
        cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    };
    static void send(int socket, Given& given) {
        given.text.push_back('\n');
        iovec data{given.text.data(), given.text.size()};
        Control control{};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        if (given.fd >= 0) {
            message.msg_control = control.bytes;
            message.msg_controllen = CMSG_LEN(sizeof(int));
            control.header.cmsg_level = SOL_SOCKET;
            control.header.cmsg_type = SCM_RIGHTS;
            control.header.cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(&control.header), &given.fd, sizeof given.fd);
        }
        if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) ::_exit(1);
    }
    void receive() {
        std::array<char, 4096> bytes{};
        iovec data{bytes.data(), bytes.size()};
        Control control{};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
        if (got <= 0) return;
        text_.assign(bytes.data(), static_cast<std::size_t>(got) - 1);
        if (CMSG_FIRSTHDR(&message) == nullptr) return;
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        fd_.reset(fd);
    }

    pid_t pid_ = -1;
    UniqueFd socket_;
    std::string text_;
    UniqueFd fd_;
};

bool is_root() { return ::geteuid() == 0; }

void become_stranger() {
    if (::setresgid(stranger, stranger, stranger) != 0) std::abort();
    if (::setresuid(stranger, stranger, stranger) != 0) std::abort();
    ::prctl(PR_SET_DUMPABLE, 1);
}

MemoryAddress address_of_memory(const SharedMemory& memory) {
    return MemoryAddress::parse(memory.address()).value();
}

// Memory whose thread, which hands it out, only waits by now: a child that is forked while it
// starts may find the allocator locked for ever.
std::shared_ptr<SharedMemory> make_before_fork(std::vector<pid_t> receivers = {}) {
    auto made = SharedMemory::create(page, "test", SIZE_MAX, std::move(receivers));
    const MemoryAddress address = address_of_memory(*made);
    receive_region(address.socket, address.creator, soon());
    return made;
}

// With the label of `memory`, as its creator would write it, but with these seals and of this size.
UniqueFd look_alike(const SharedMemory& memory, std::size_t mapped, int seals) {
    UniqueFd fd(::memfd_create("ddp-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(mapped)), 0);
    EXPECT_EQ(::pwrite(fd.get(), memory.data() - page, page, 0), static_cast<ssize_t>(page));
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

// What opening the descriptor `fd` of this process as that memory is refused with.
std::string refusal(const SharedMemory& memory, int fd, std::size_t bytes = 0,
                    const HostKernel& kernel = HostKernel::real()) {
    MemoryAddress address = address_of_memory(memory);
    address.fd = fd;
    address.socket = "-";
    return refusal_of([&] { SharedMemory::open(address.to_text(), soon(), bytes, kernel); });
}

constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(ForeignMemory, IsOpenedWhereItIsOurs) {  // so that the refusals below are for one reason each
    const auto made = SharedMemory::create(page, "test");
    const UniqueFd same = look_alike(*made, 2 * page, all_seals);
    EXPECT_EQ(refusal(*made, same.get()), "nothing was refused");
    EXPECT_EQ(refusal(*made, same.get(), page), "nothing was refused");
}

TEST(ForeignMemory, OfAnotherUserIsRefused) {
    if (!is_root()) GTEST_SKIP() << "needs root, to be another user";
    const auto made = make_before_fork();
    const Child other([&] {
        become_stranger();
        return Child::Given{"made", look_alike(*made, 2 * page, all_seals).release()};
    });
    ASSERT_EQ(other.text(), "made");
    // As if this process had been given it, and by the process that made it.
    EXPECT_THAT(refusal(*made, other.fd()),
                AllOf(HasSubstr("/fd/"), HasSubstr("belongs to user 65534, and this process to "
                                                   "user 0")));
    MemoryAddress address = address_of_memory(*made);
    address.creator = other.pid();
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(address.to_text(), soon()); }),
                HasSubstr("process " + std::to_string(other.pid()) + " belongs to user 65534"));
}

TEST(ForeignMemory, OfAnotherUsersContainerIsRefused) {
    const auto made = SharedMemory::create(page, "test");
    FakeKernel kernel;
    kernel.owner_of_memory = 1'000'007;
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(made->address(), soon(), 0, kernel); }),
                HasSubstr("belongs to user 1000007, and this process to user"));
    kernel.owner_of_memory.reset();
    kernel.owner_of_processes = 1'000'007;
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(made->address(), soon(), 0, kernel); }),
                HasSubstr("process " + std::to_string(::getpid()) + " belongs to user 1000007"));
}

// There every user without a number is shown as 65534, this process's own too.
TEST(ForeignMemory, IsRefusedWhereAllStrangersHaveOneNumber) {
    const auto made = SharedMemory::create(page, "test");
    FakeKernel kernel;
    kernel.me = kernel.owner_of_memory = kernel.owner_of_processes = stranger;
    EXPECT_EQ(refusal_of([&] { SharedMemory::open(made->address(), soon(), 0, kernel); }),
              "nothing was refused");
    kernel.many = stranger;
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(made->address(), soon(), 0, kernel); }),
                HasSubstr("may be any stranger: this process's user namespace"));
}

TEST(ForeignMemory, IsRefusedInAUserNamespaceWithoutNumbers) {
    const auto made = make_before_fork();
    const Child child([&]() -> Child::Given {
        if (::unshare(CLONE_NEWUSER) != 0) return {"cannot"};
        return {refusal_of([&] { SharedMemory::open(made->address(), soon()); })};
    });
    if (child.text() == "cannot") GTEST_SKIP() << "user namespaces are not allowed here";
    EXPECT_THAT(child.text(), HasSubstr("65534"));
}

TEST(ForeignMemory, ThatMayShrinkIsRefused) {
    const auto made = SharedMemory::create(page, "test");
    for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW | F_SEAL_SEAL,
                            F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_SEAL}) {
        const UniqueFd fd = look_alike(*made, 2 * page, seals);
        EXPECT_THAT(refusal(*made, fd.get()), HasSubstr("is not sealed memory")) << seals;
    }
    const MemoryAddress address = address_of_memory(*made);
    EXPECT_EQ(::fcntl(address.fd, F_GET_SEALS) & all_seals, all_seals);
    EXPECT_NE(::fcntl(address.fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "takes more seals";
    EXPECT_NE(::ftruncate(address.fd, 0), 0);
}

TEST(ForeignMemory, OfAnotherSizeIsRefused) {
    const auto made = SharedMemory::create(2 * page, "test");
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(made->address(), soon(), page); }),
                HasSubstr("has 12288 bytes, another size"));
    EXPECT_THAT(refusal_of([&] { SharedMemory::open(made->address(), soon(), 3 * page); }),
                HasSubstr("another size"));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{100}, page, page + 1, 2 * page - 1}) {
        const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
        ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, all_seals), 0);
        EXPECT_THAT(refusal(*made, fd.get()), HasSubstr("another size")) << size;
    }
}

TEST(ForeignMemory, OfAnotherVersionIsRefused) {
    const auto made = SharedMemory::create(page, "test");
    const UniqueFd fd = look_alike(*made, 2 * page, F_SEAL_SHRINK | F_SEAL_GROW);
    const std::uint64_t version = 2;
    ASSERT_EQ(::pwrite(fd.get(), &version, sizeof version, sizeof(std::uint64_t)), 8);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
    EXPECT_THAT(refusal(*made, fd.get()), HasSubstr("is of another version of ddp (layout 2"));
}

TEST(ForeignMemory, ThatIsAFileADeviceOrASocketIsRefused) {
    const auto made = SharedMemory::create(page, "test");
    std::string name = ::testing::TempDir() + "ddp-foreign-XXXXXX";
    const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
    ASSERT_TRUE(file);
    ASSERT_EQ(::ftruncate(file.get(), 2 * page), 0);
    EXPECT_THAT(refusal(*made, file.get()), HasSubstr("a file with a name"));
    ASSERT_EQ(::unlink(name.c_str()), 0);
    EXPECT_THAT(refusal(*made, file.get()), HasSubstr("is not sealed memory"));

    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]), writer(ends[1]);
    const UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    const UniqueFd folder(::open("/proc", O_RDONLY | O_CLOEXEC));
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const UniqueFd* const fd : {&reader, &device, &folder, &socket}) {
        EXPECT_THAT(refusal(*made, fd->get()), HasSubstr("is no file at all")) << fd->get();
    }
}

TEST(MemoryAddress, IsTheSameAfterATrip) {
    const MemoryAddress address{77, 3, UINT64_MAX, "ddp-region-12345678901234567890"};
    const auto copy = MemoryAddress::parse(address.to_text());
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->to_text(), "77 3 18446744073709551615 ddp-region-12345678901234567890");
}

TEST(MemoryAddress, IsNothingElse) {
    const std::string too_long = "1 2 3 ddp-region-" + std::string(110, '1');
    for (const std::string& text :
         {std::string(), std::string("1 2 3"), std::string("1 2 3 "), std::string("0 2 3 -"),
          std::string("-1 2 3 -"), std::string("1 -2 3 -"), std::string("1 2 -3 -"),
          std::string("99999999999 2 3 -"), std::string("1 2 3 evil"), std::string("1  2 3 -"),
          std::string("1 2 3 - "), std::string("1 2 3 ddp-region-"), std::string("1/2 3 4 -"),
          std::string("1 2 3 ddp-region-1x"), std::string("1 2 3 ddp-region-1\0", 19), too_long}) {
        EXPECT_FALSE(MemoryAddress::parse(text)) << text;
        EXPECT_THROW(SharedMemory::open(text, soon()), ddp::UsageError) << text;
    }
}

// A listening abstract socket of that name, in this process.
UniqueFd squat(const std::string& name) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(socket.get(), 1) != 0) {
        std::abort();
    }
    return socket;
}

std::string name_of_test_socket() { return "ddp-region-77777" + std::to_string(::getpid()); }

TEST(RegionHandover, FindsOutASquatterOfAnotherUser) {
    if (!is_root()) GTEST_SKIP() << "needs root, to be another user";
    const std::string name = name_of_test_socket();
    const Child squatter([&] {
        become_stranger();
        return Child::Given{"listens", squat(name).release()};
    });
    EXPECT_THAT(refusal_of([&] { receive_region(name, squatter.pid(), soon()); }),
                HasSubstr("what answers belongs to user 65534"));
}

TEST(RegionHandover, FindsOutASquatterOfThisUser) {
    const std::string name = name_of_test_socket();
    const Child squatter([&] { return Child::Given{"listens", squat(name).release()}; });
    EXPECT_THAT(refusal_of([&] { receive_region(name, ::getpid(), soon()); }),
                HasSubstr("another process answered, " + std::to_string(squatter.pid())));
    EXPECT_THAT(refusal_of([&] { receive_region("squatter", ::getpid(), soon()); }),
                HasSubstr("is no such socket"));
}

// Whoever makes it is stopped, and the queue of its socket is full.
TEST(RegionHandover, IsNotWaitedForBeyondTheDeadline) {
    const std::string name = name_of_test_socket();
    const UniqueFd listener = squat(name);
    std::vector<UniqueFd> queue;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    do {
        queue.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    } while (queue.size() < 100 &&
             ::connect(queue.back().get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    ASSERT_LT(queue.size(), 100U) << "the queue is never full";
    const auto deadline = Deadline::after(std::chrono::milliseconds{100});
    EXPECT_THAT(refusal_of([&] { receive_region(name, ::getpid(), deadline); }),
                HasSubstr("timed out"));
}

TEST(RegionHandover, GivesNothingToAnotherUser) {
    if (!is_root()) GTEST_SKIP() << "needs root, to be another user";
    const auto made = make_before_fork();
    const MemoryAddress address = address_of_memory(*made);
    const Child taker([&] {
        become_stranger();
        FakeKernel credulous;  // it does not mind to be given memory of another user
        credulous.me = 0;
        return Child::Given{refusal_of(
            [&] { receive_region(address.socket, address.creator, soon(), credulous); })};
    });
    EXPECT_THAT(taker.text(), HasSubstr("to it this process is another user's, or no rank"));
}

TEST(RegionHandover, GivesItToTheProcessesAloneThatItKnows) {
    const auto for_us = make_before_fork({::getpid()});
    const MemoryAddress address = address_of_memory(*for_us);
    const auto take = [&] { receive_region(address.socket, address.creator, soon()); };
    EXPECT_EQ(refusal_of(take), "nothing was refused");
    const Child other([&] { return Child::Given{refusal_of(take)}; });
    EXPECT_THAT(other.text(), HasSubstr("or no rank"));
}

// The header of a region, which only its creator should write.
RegionHeader& header_of(const SharedRegion& region) {
    auto* const word = reinterpret_cast<std::byte*>(&region.abort_word());
    return *reinterpret_cast<RegionHeader*>(word - offsetof(RegionHeader, abort_word));
}

std::shared_ptr<SharedRegion> make_region(int ranks, const char* tuning = "chunk_bytes=8K") {
    return SharedRegion::create(ranks, make_tuning(ranks, 2, tuning));
}

TEST(SharedRegion, IsRefusedWhenItIsOfAnotherNumberOfRanks) {
    const auto made = make_region(3);
    EXPECT_NO_THROW(SharedRegion::open(made->address(), 3, soon()));
    for (const int ranks : {1, 2, 4, 4096}) {
        EXPECT_THAT(
            refusal_of([&] { SharedRegion::open(made->address(), ranks, soon()); }),
            HasSubstr("is not a region of " + std::to_string(ranks) + " ranks: it is one of 3"));
    }
    for (const std::uint64_t ranks : {std::uint64_t{0}, std::uint64_t{4}, UINT64_MAX}) {
        header_of(*made).ranks = ranks;
        EXPECT_THAT(refusal_of([&] { SharedRegion::open(made->address(), 3, soon()); }),
                    HasSubstr("it is one of " + std::to_string(ranks)));
    }
}

TEST(SharedRegion, IsRefusedWhenANumberOfItsHeaderIsOutOfBounds) {
    const auto made = make_region(2);
    Tuning& tuning = header_of(*made).tuning;
    const Tuning right = made->tuning();
    const struct {
        const char* name;
        std::uint64_t& place;
        std::vector<std::uint64_t> wrong;
    } numbers[] = {
        {"chunk_bytes",
         tuning.staged.chunk_bytes,
         {0, 1, 4095, 8193, (64 << 20) + 4096, UINT64_MAX}},
        {"pipelined_bytes", tuning.staged.pipelined_bytes, {0, 4097, 12288, UINT64_MAX - 4095}},
        {"one_phase_bytes", tuning.staged.one_phase_bytes, {8193, UINT64_MAX}},
        {"spins", tuning.waiting.spins, {(16 << 20) + 1, UINT64_MAX}},
    };
    for (const auto& number : numbers) {
        for (const std::uint64_t wrong : number.wrong) {
            tuning = right;
            number.place = wrong;
            EXPECT_THAT(refusal_of([&] { SharedRegion::open(made->address(), 2, soon()); }),
                        HasSubstr(std::string("its ") + number.name + " cannot be"))
                << wrong;
        }
    }
    tuning = right;
    tuning.staged.chunk_bytes = 16384;  // possible, but not of this size
    EXPECT_THAT(refusal_of([&] { SharedRegion::open(made->address(), 2, soon()); }),
                HasSubstr("bytes, not "));
}

TEST(SharedRegion, KeepsTheNumbersThatItWasOpenedWith) {
    const auto made = make_region(2);
    const auto opened = SharedRegion::open(made->address(), 2, soon());
    std::memset(static_cast<void*>(&header_of(*made)), 0xff, offsetof(RegionHeader, abort_word));
    for (const auto& region : {made, opened}) {
        EXPECT_EQ(region->tuning(), make_tuning(2, 2, "chunk_bytes=8K"));
        EXPECT_EQ(region->ranks(), 2);
        EXPECT_EQ(region->slot_bytes(), 8192U);
    }
}

TEST(Waiter, RefusesAProcessOfAnotherUser) {
    const auto region = make_region(2);
    for (const int rank : {0, 1}) region->introduce(rank);
    FakeKernel kernel;
    kernel.owner_of_processes = 1'000'007;
    EXPECT_THAT(refusal_of([&] { Waiter(*region, 0, nullptr, {}, kernel); }),
                HasSubstr("the process of rank 1 (pid " + std::to_string(::getpid()) +
                          ") belongs to user 1000007"));
    kernel.owner_of_processes.reset();
    kernel.hides_processes = true;
    EXPECT_THAT(refusal_of([&] { Waiter(*region, 0, nullptr, {}, kernel); }),
                HasSubstr("may be any user's"));
}

TEST(Waiter, RefusesAPidThatMeansAStrangersProcess) {
    if (!is_root()) GTEST_SKIP() << "needs root, to be another user";
    const Child other([] {
        become_stranger();
        return Child::Given{"is another"};
    });
    const auto region = make_region(2);
    for (const int rank : {0, 1}) region->introduce(rank);
    region->block(1).pid = other.pid();
    EXPECT_THAT(refusal_of([&] { Waiter(*region, 0, nullptr, {}); }),
                HasSubstr("belongs to user 65534"));
}

TEST(Waiter, RefusesAPidThatIsNoneOrThisProcess) {
    const auto region = make_region(2);
    region->introduce(0);
    for (const pid_t pid : {0, -1, INT32_MIN, ::getpid()}) {
        region->block(1).pid = pid;
        EXPECT_THAT(refusal_of([&] { Waiter(*region, 0, nullptr, {}); }),
                    HasSubstr("rank 1 (pid " + std::to_string(pid) + ") cannot be that process"));
    }
}

TEST(Waiter, KnowsItsPeersWhateverTheRegionSaysLater) {
    const auto region = make_region(2, "direct_bytes_max=1M");
    for (const int rank : {0, 1}) region->introduce(rank);
    Waiter waiter(*region, 0, nullptr, {});
    PeerMemory peers(*region, 0, waiter);
    region->block(1).pid = 1;
    EXPECT_EQ(waiter.pid(1), ::getpid());
    EXPECT_THAT(waiter.name(1), HasSubstr(std::to_string(::getpid())));
    const std::byte from{7};
    std::byte to{0};
    peers.write(1, address_of(&to), &from, 1, [] { return std::string("the test"); });
    EXPECT_EQ(to, from);
}

TEST(Waiter, SurvivesAbortWordsThatNameNobody) {
    const auto region = make_region(2);
    for (const int rank : {0, 1}) region->introduce(rank);
    const std::vector<int> job_ranks{4, 5};
    std::atomic<std::uint32_t> agents{0};
    const Waiter waiter(*region, 0, &agents, job_ranks);
    for (const std::uint32_t word : {0x80000000U, UINT32_MAX, 7U}) {
        agents = word;
        EXPECT_EQ(waiter.find_trouble("the test"), nullptr) << word;
    }
    for (const std::uint32_t word : {0x01ffffffU, 0x01000002U, 0xff000001U, 0x00000001U}) {
        region->abort_word() = word;
        EXPECT_THROW(waiter.throw_abort("the test"), ddp::Error) << word;
    }
}

// Runs a rank of each kernel on a thread, past its first call.
template <class Body>
void run_threads(const std::shared_ptr<SharedRegion>& region,
                 const std::vector<const HostKernel*>& kernels, const Body& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < region->ranks(); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ShmBackend backend(region, rank, nullptr, {},
                                   *kernels[static_cast<std::size_t>(rank)]);
                backend.run({.kind = Collective::barrier}, 1, Deadline::after(60s));
                body(rank, backend);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
}

constexpr const char* by_address =
    "one_phase_bytes=0,chunk_bytes=4K,direct_bytes_min=1,direct_bytes_max=1024M,"
    "direct_exchange_bytes_max=1024M,direct_reduction_bytes_max=1024M";

// kernel.yama.ptrace_scope=1 forbids it between siblings; so do some containers.
TEST(PeerMemory, IsDoneWithoutWhereYamaForbidsIt) {
    const auto region = make_region(2, by_address);
    for (const int rank : {0, 1}) region->introduce(rank);
    FakeKernel yama;
    yama.error_of_copies = EPERM;
    run_threads(region, {&HostKernel::real(), &yama}, [&](int rank, ShmBackend& backend) {
        EXPECT_EQ(region->block(rank).can_access_peers, rank == 0 ? 1U : 0U);
        std::vector<float> values(20'000, static_cast<float>(rank + 1));
        backend.run({.kind = Collective::all_reduce,
                     .dtype = ddp::DType::float32,
                     .elements = values.size(),
                     .input = values.data(),
                     .output = values.data()},
                    2, Deadline::after(60s));
        EXPECT_EQ(std::count(values.begin(), values.end(), 3.0F), 20'000);
    });
}

TEST(PeerMemory, IsNotReadByWhoHasNotFoundThePeer) {
    const auto region = make_region(2, by_address);
    for (const int rank : {0, 1}) region->introduce(rank);
    FakeKernel yama;
    yama.error_of_copies = EPERM;
    ShmBackend first(region, 0), second(region, 1, nullptr, {}, yama);
    region->block(1).can_access_peers = 1;  // as somebody wrote there
    std::vector<std::byte> sent(std::size_t{1} << 20, std::byte{7}), got(sent.size());
    const auto send = first.start_transfer({Direction::send, 1, sent.data(), sent.size()});
    const auto receive = second.start_transfer({Direction::receive, 0, got.data(), got.size()});
    EXPECT_TRUE(send->advance());
    EXPECT_THROW(receive->advance(), ddp::Error);
    EXPECT_EQ(std::count(got.begin(), got.end(), std::byte{0}), std::ssize(got));
}

TEST(SharedAllocations, GiveNoPlaceOutsideOfAPiece) {
    constexpr std::size_t stride = 2 * page;
    const auto made = SharedMemory::create(2 * stride, "test");
    SharedAllocations ranks(0, 2);
    const auto own = ranks.add(made, stride);
    EXPECT_EQ(ranks.address(1, {1, 0}, {0, stride}), made->data() + stride);
    EXPECT_EQ(ranks.address(1, {1, 100}, {10, 5}), made->data() + stride + 110);
    const struct {
        BufferLocation location;
        SharedAllocations::Extent extent;
    } outside[] = {
        {{1, 0}, {0, stride + 1}},
        {{1, 1}, {0, stride}},
        {{1, stride}, {0, 1}},
        {{1, stride + 1}, {0, 0}},
        {{1, UINT64_MAX}, {1, 1}},
        {{1, 0}, {SIZE_MAX, 2}},
        {{1, UINT64_MAX - 4}, {SIZE_MAX, 10}},
        {{2, 0}, {0, 1}},
        {{0, 0}, {0, 1}},
        {{UINT32_MAX, 0}, {0, 1}},
    };
    for (const auto& [location, extent] : outside) {
        EXPECT_THROW(ranks.address(1, location, extent), ddp::Error)
            << location.allocation << " " << location.offset << " " << extent.first;
    }
}

TEST(SharedAllocations, StayWhileTheyAreHeldWhateverTheCountSays) {
    SharedAllocations ranks(0, 2);
    const auto made = SharedMemory::create(page, "test");
    const auto own = ranks.add(made, page);
    made->released() = 2;
    EXPECT_NE(ranks.locate(own.get(), 1).location.allocation, 0U);
}

using ddp::backends::BackendSupport;
using ddp::backends::RequestedBackend;

TEST(BackendSupport, IsTheSameAfterATrip) {
    const BackendSupport one{
        {ddp::Backend::gloo, ddp::backends::GpuState::usable}, "host/id", "why", ""};
    const BackendSupport copy = BackendSupport::decode(one.encode());
    EXPECT_EQ(copy.request.encode(), one.request.encode());
    EXPECT_EQ(copy.host + "|" + copy.shm_refusal + "|" + copy.other_refusal, "host/id|why|");
}

TEST(BackendSupport, IsRefusedWhenNoRankSaysIt) {
    for (const char* const text : {"", "1", "1\n", "1\n\n", "x\na\nb\nc", "-1\na\nb\nc",
                                   "5\na\nb\nc", "768\na\nb\nc", "99999999999\na\nb\nc"}) {
        EXPECT_THROW(BackendSupport::decode(text), ddp::UsageError) << text;
    }
    EXPECT_THROW(RequestedBackend::decode(UINT32_MAX), ddp::UsageError);
}

TEST(BackendSupport, BringsNoTerminalSequencesAndNoFloodIntoMessages) {
    const BackendSupport one =
        BackendSupport::decode("1\nhost\n\x1b[2J" + std::string(100'000, 'x') + "\n");
    EXPECT_EQ(one.shm_refusal.find('\x1b'), std::string::npos);
    EXPECT_LT(one.shm_refusal.size(), 2'000U);
}

// The largest count that two ranks can agree on is more than either has.
TEST(ShmBackend, RefusesCountsThatNoMemoryHolds) {
    const auto region = make_region(2);
    for (const int rank : {0, 1}) region->introduce(rank);
    const auto& real = HostKernel::real();
    run_threads(region, {&real, &real}, [&](int rank, ShmBackend& backend) {
        const auto me = static_cast<std::size_t>(rank);
        ddp::backends::Parts counts{{0, 0}, {0, 0}};
        counts.send[1 - me] = counts.receive[1 - me] = SIZE_MAX / 2;
        // Whoever does not throw first may begin to stage its part.
        std::vector<std::byte> memory(std::size_t{1} << 20);
        const Call call{.kind = Collective::all_to_all,
                        .input = memory.data(),
                        .output = memory.data() + memory.size() / 2,
                        .parts = std::make_shared<const ddp::backends::Parts>(counts)};
        EXPECT_THROW(backend.run(call, 2, Deadline::after(60s)), ddp::UsageError);
    });
}

}  // namespace
