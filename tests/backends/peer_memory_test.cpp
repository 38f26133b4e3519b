// Peers' memory by its address: who may access it, what happens where it cannot be read or written,
// to calls where only some can, and to memory that its owner gives up. Ranks are threads of one
// process, which takes the same way, but for those that die or stop.
#include "backends/shm/shm_backend.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::backends::Direction;
using ddp::base::Deadline;
using ddp::shm::PeerMemory;
using ddp::shm::SharedRegion;
using ddp::shm::ShmBackend;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* always =
    "one_phase_bytes=0,chunk_bytes=4K,direct_bytes_min=1,direct_bytes_max=1024M,"
    "direct_exchange_bytes_max=1024M";
constexpr std::size_t page_bytes = 4096;

std::shared_ptr<SharedRegion> make_introduced_region(int ranks, const char* tuning = always) {
    auto region = SharedRegion::create(ranks, ddp::shm::make_tuning(ranks, 2, tuning));
    for (int rank = 0; rank < ranks; ++rank) region->introduce(rank);
    return region;
}

// A rank as one of the test's threads, past its first call.
template <class Body>
void run_threads(const std::shared_ptr<SharedRegion>& region, const Body& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < region->ranks(); ++rank) {
        threads.emplace_back([&region, &body, rank] {
            ShmBackend backend(region, rank);
            try {
                backend.run({.kind = Collective::barrier}, 1, Deadline::after(60s));
                body(rank, backend);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
}

// Pages of this process, `hole` of them without access; 0: none.
class Pages {
public:
    explicit Pages(std::size_t count, std::size_t hole = 0) : bytes_(count * page_bytes) {
        data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (hole != 0) ::mprotect(data() + hole * page_bytes, page_bytes, PROT_NONE);
    }
    ~Pages() { ::munmap(data_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(data_); }
    std::size_t bytes() const { return bytes_; }

private:
    std::size_t bytes_;
    void* data_;
};

Call all_to_all(const void* input, void* output, std::size_t part_bytes) {
    return {.kind = Collective::all_to_all,
            .dtype = ddp::DType::uint8,
            .elements = part_bytes,
            .input = input,
            .output = output};
}

// From rank 0.
Call scatter(const void* input, void* output, std::size_t part_bytes) {
    Call call = all_to_all(input, output, part_bytes);
    call.kind = Collective::scatter;
    return call;
}

template <class Error, class Body>
std::string message_of(const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    ADD_FAILURE() << "threw nothing";
    return {};
}

TEST(PeerMemory, IsOfUseWhereAllFindTheTokens) {
    const auto region = make_introduced_region(3);
    const ShmBackend first(region, 0), second(region, 1);
    EXPECT_EQ(region->block(0).can_access_peers, 1U);
    EXPECT_EQ(region->block(1).can_access_peers, 1U);
    EXPECT_EQ(region->block(2).can_access_peers, 0U) << "has not said so";
}

TEST(PeerMemory, IsNotUsedWhereAPidMeansAnotherProcess) {
    const auto region = make_introduced_region(2);
    region->block(1).token ^= 1;  // as if somebody else had the pid
    run_threads(region, [&](int rank, ShmBackend& backend) {
        EXPECT_EQ(region->block(rank).can_access_peers, rank == 0 ? 0U : 1U);
        const std::vector<std::byte> input(10'000, static_cast<std::byte>(rank));
        std::vector<std::byte> output(10'000, std::byte{9});
        backend.run(all_to_all(input.data(), output.data(), 5'000), 2, Deadline::after(60s));
        EXPECT_EQ(std::count(output.begin() + 5'000, output.end(), std::byte{1}), 5'000);
    });
}

TEST(PeerMemory, TriesNothingWhereTheTuningNeverReads) {
    const auto region = make_introduced_region(2, "direct_bytes_max=0");
    const ShmBackend first(region, 0);
    EXPECT_EQ(region->block(0).can_access_peers, 0U);
}

TEST(PeerMemory, TellsMemoryThatPeersCannotRead) {
    const Pages pages(3), last(3, 2);
    EXPECT_TRUE(PeerMemory::is_accessible({pages.data(), 1}));
    EXPECT_TRUE(PeerMemory::is_accessible({pages.data(), pages.bytes()}));
    EXPECT_TRUE(PeerMemory::is_accessible({last.data(), 2 * page_bytes}));
    EXPECT_FALSE(PeerMemory::is_accessible({last.data(), last.bytes()}));
}

TEST(PeerMemory, BlamesAPeerThatHasEnded) {
    const auto region = make_introduced_region(2);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    region->block(1).pid.store(child);
    ddp::shm::Waiter waiter(*region, 0, nullptr, {});
    PeerMemory reader(*region, 0, waiter);
    EXPECT_FALSE(reader.all_can_access_peers());
    int number = 0;
    const auto message = message_of<ddp::PeerError>([&] {
        reader.read(1, ddp::shm::address_of(&number), &number, sizeof number,
                    [] { return std::string("the test"); });
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 1"), HasSubstr("ended while this rank was in the test")));
}

// Rank 0's end of a region whose rank 1 is the test's, or a child of it.
struct OneEnd {
    std::shared_ptr<SharedRegion> region = make_introduced_region(2);
    ddp::shm::Waiter waiter{*region, 0, nullptr, {}};
    PeerMemory peers{*region, 0, waiter};
    ddp::shm::RemoteWrite& others = region->block(1).write;
};
std::string the_test() { return "the test"; }

TEST(PeerMemory, WritesAnyNumberOfBytesAndWithdrawsItsWrite) {
    OneEnd end;
    for (const std::size_t bytes : {1U, 4'095U, 4'097U, 3'000'001U}) {
        const std::vector<std::byte> from(bytes, std::byte{5});
        std::vector<std::byte> to(bytes + 1, std::byte{1});
        end.peers.write(1, ddp::shm::address_of(to.data()), from.data(), bytes, the_test);
        EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{5}), static_cast<long>(bytes));
        EXPECT_EQ(to.back(), std::byte{1});
        EXPECT_EQ(end.region->block(0).write.target, 0);
    }
}

TEST(PeerMemory, WritesNothingOnceTheGroupIsAborted) {
    OneEnd end;
    const std::byte from{5};
    std::byte to{1};
    end.waiter.abort(ddp::shm::AbortReason::peer_timed_out, 1);
    EXPECT_THROW(end.peers.write(1, ddp::shm::address_of(&to), &from, 1, the_test),
                 ddp::TimeoutError);
    EXPECT_EQ(to, std::byte{1});
}

TEST(PeerMemory, SaysThatMemoryCannotBeWritten) {
    OneEnd end;
    const Pages from(4), to(4, 2);
    const auto message = message_of<ddp::SystemError>([&] {
        end.peers.write(1, ddp::shm::address_of(to.data()), from.data(), to.bytes(), the_test);
    });
    EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr("in the memory of rank 1"),
                               HasSubstr("Bad address")));
}

// As after setuid() or a seccomp filter, in the middle of a run.
struct ForbiddenLater : ddp::shm::HostKernel {
    bool forbidden = false;
    ssize_t refuse() const {
        errno = EPERM;
        return -1;
    }
    ssize_t read_memory(pid_t process, const iovec& local, const iovec& remote) const override {
        return forbidden ? refuse() : HostKernel::read_memory(process, local, remote);
    }
    ssize_t write_memory(pid_t process, const iovec& local, const iovec* remote) const override {
        return forbidden ? refuse() : HostKernel::write_memory(process, local, remote);
    }
};

TEST(PeerMemory, SaysThatItIsForbiddenWhatItCouldDoBefore) {
    for (const bool reads : {true, false}) {
        const auto region = make_introduced_region(2);
        ForbiddenLater kernel;
        ddp::shm::Waiter waiter(*region, 0, nullptr, {}, kernel);
        PeerMemory peers(*region, 0, waiter);
        ASSERT_TRUE(peers.can_access_peers());
        kernel.forbidden = true;
        int number = 0;
        const auto message = message_of<ddp::SystemError>([&] {
            const auto address = ddp::shm::address_of(&number);
            if (reads) {
                peers.read(1, address, &number, sizeof number, the_test);
            } else {
                peers.write(1, address, &number, sizeof number, the_test);
            }
        });
        EXPECT_THAT(message, AllOf(HasSubstr(reads ? "cannot read" : "cannot write"),
                                   HasSubstr("in the memory of rank 1"),
                                   HasSubstr("Operation not permitted"),
                                   HasSubstr("filters before init_process_group, or set "
                                             "DDP_SHM_TUNING=direct_bytes_max=0")));
        EXPECT_TRUE(waiter.is_aborted()) << "the others hear of it";
    }
}

// The peer ends after the first of several writes.
struct PeerEnds : ddp::shm::HostKernel {
    pid_t peer = -1;
    ssize_t write_memory(pid_t process, const iovec& local, const iovec* remote) const override {
        const ssize_t count = HostKernel::write_memory(process, local, remote);
        ::kill(peer, SIGKILL);
        ::waitpid(peer, nullptr, 0);
        return count;
    }
};

TEST(PeerMemory, BlamesAPeerThatEndsAmidAWrite) {
    const auto region = make_introduced_region(2);
    const std::vector<std::byte> from(3'000'001);
    std::vector<std::byte> to(from.size());  // the child's as well
    PeerEnds kernel;
    kernel.peer = ::fork();
    if (kernel.peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::pause();
        ::_exit(0);
    }
    region->block(1).pid.store(kernel.peer);
    ddp::shm::Waiter waiter(*region, 0, nullptr, {}, kernel);
    PeerMemory peers(*region, 0, waiter);
    const auto message = message_of<ddp::PeerError>([&] {
        peers.write(1, ddp::shm::address_of(to.data()), from.data(), from.size(), the_test);
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 1"), HasSubstr("ended while this rank was in the test")));
}

TEST(PeerMemory, IsClosedWhenThePeersWriteHasEnded) {
    OneEnd end;
    end.others.bytes = 100;
    end.others.target = 1;
    std::atomic<bool> ended{false};
    std::jthread writer([&] {
        while (end.others.bytes != 0) std::this_thread::yield();  // made empty by the owner
        EXPECT_TRUE(end.waiter.is_aborted());
        ended = true;
        end.others.target = 0;
    });
    end.peers.revoke_access();
    EXPECT_TRUE(ended);
}

TEST(PeerMemory, IsClosedAtOnceWhereNobodyWritesOrTheWriterIsDead) {
    const auto start = std::chrono::steady_clock::now();
    OneEnd idle;
    idle.others.target = 2;  // its own
    idle.peers.revoke_access();

    const auto region = make_introduced_region(2);
    const pid_t child = ::fork();
    if (child == 0) {
        region->block(1).write.target = 1;
        ::raise(SIGKILL);
    }
    ASSERT_GT(child, 0);
    region->block(1).pid = child;
    ddp::shm::Waiter waiter(*region, 0, nullptr, {});
    PeerMemory peers(*region, 0, waiter);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_EQ(region->block(1).write.target, 1);
    peers.revoke_access();
    // Less than for a writer that lives: it does not wait in vain.
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1900ms);
}

// It has published its write, but not called the kernel; it does so when it goes on, after the
// owner has long left.
TEST(PeerMemory, IsNotWrittenByAWriterThatWasStopped) {
    const auto region = make_introduced_region(2);
    std::vector<std::byte> memory(100'000, std::byte{1});
    const pid_t owner = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        const std::vector<std::byte> from(memory.size(), std::byte{5});
        ddp::shm::RemoteWrite& write = region->block(1).write;
        write.address = ddp::shm::address_of(memory.data());
        write.bytes = memory.size();
        write.target = 1;
        ::raise(SIGSTOP);
        const iovec local{const_cast<std::byte*>(from.data()), from.size()};
        const auto* const remote = reinterpret_cast<const iovec*>(&write.address);
        ::_exit(::process_vm_writev(owner, &local, 1, remote, 1, 0) == 0 ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    region->block(1).pid = child;
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    ddp::shm::Waiter waiter(*region, 0, nullptr, {});
    PeerMemory peers(*region, 0, waiter);
    peers.revoke_access();
    ::kill(child, SIGCONT);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wrote something";
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{1}), 100'000);
}

// The page in the middle belongs to rank 1's part, of which rank 0 writes the first sixth.
TEST(PeerMemory, FailsACallOnAllRanksWhenMemoryCannotBeRead) {
    run_threads(make_introduced_region(3), [&](int rank, ShmBackend& backend) {
        const Pages input(30, rank == 0 ? 15 : 0), output(10);
        const std::size_t part = output.bytes();
        const auto call = [&] {
            backend.run(scatter(input.data(), output.data(), part), 2, Deadline::after(60s));
        };
        const std::string message = message_of<ddp::Error>(call);
        EXPECT_THAT(message, HasSubstr("rank 1"));
        EXPECT_THAT(message, HasSubstr("scatter of 40960 uint8 from rank 0, operation 2"));
        if (rank == 1) {
            EXPECT_THAT(message, AllOf(HasSubstr("cannot read 34176 bytes in the memory of rank 0"),
                                       HasSubstr("Bad address")));
        }
    });
}

// Memory that its owner alone can read, as the kernel sees it: a device's is such too.
class SecretMemory {
public:
    explicit SecretMemory(std::size_t bytes) : bytes_(bytes) {
        const int fd = static_cast<int>(::syscall(SYS_memfd_secret, 0));
        if (fd < 0) return;
        if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
            void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
        }
        ::close(fd);
    }
    ~SecretMemory() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    SecretMemory(const SecretMemory&) = delete;
    SecretMemory& operator=(const SecretMemory&) = delete;
    std::byte* data() const { return data_; }

private:
    std::size_t bytes_;
    std::byte* data_ = nullptr;
};

// Rank 0's memory is mapped by all, rank 1's can be read by all, rank 2's by nobody if `secret`.
void exchange_mixed(bool secret) {
    constexpr std::size_t part = 10'000, bytes = 3 * part;
    run_threads(make_introduced_region(3), [&](int rank, ShmBackend& backend) {
        const auto shared = backend.provide_memory(
            {.kind = Collective::allocate, .elements = bytes}, 2, Deadline::after(60s));
        std::vector<std::byte> own(bytes);
        const SecretMemory hidden(bytes);
        std::byte* const memories[] = {static_cast<std::byte*>(shared.get()), own.data(),
                                       secret ? hidden.data() : own.data()};
        std::byte* const input = memories[rank];
        std::fill_n(input, bytes, static_cast<std::byte>(rank + 1));
        std::vector<std::byte> output(bytes);
        for (std::uint64_t number = 3; number < 8; ++number) {
            std::fill(output.begin(), output.end(), std::byte{0});
            backend.run(all_to_all(input, output.data(), part), number, Deadline::after(60s));
            for (std::size_t i = 0; i < bytes; ++i) {
                ASSERT_EQ(output[i], static_cast<std::byte>(i / part + 1)) << i;
            }
        }
    });
}

TEST(PeerMemory, ReadsBesideMemoryThatIsMapped) { exchange_mixed(false); }

TEST(PeerMemory, IsNotUsedWhereOneRanksMemoryCannotBeRead) {
    const SecretMemory probe(page_bytes);
    if (probe.data() == nullptr) GTEST_SKIP() << "this kernel has no memfd_secret";
    EXPECT_FALSE(PeerMemory::is_accessible({probe.data(), page_bytes}));
    exchange_mixed(true);
}

// More than a channel holds.
constexpr std::size_t large = std::size_t{1} << 20;

TEST(PeerMemory, EndsASendOnlyWhenItsMemoryHasBeenRead) {
    const auto region = make_introduced_region(2);
    ShmBackend first(region, 0), second(region, 1);
    std::vector<std::byte> sent(3 * large, std::byte{7}), got(3 * large);
    const auto send = first.start_transfer({Direction::send, 1, sent.data(), sent.size()});
    EXPECT_TRUE(send->advance());
    EXPECT_FALSE(send->advance()) << "nothing to do until it is read";
    EXPECT_FALSE(send->is_done());
    const auto receive = second.start_transfer({Direction::receive, 0, got.data(), got.size()});
    while (!receive->is_done()) ASSERT_TRUE(receive->advance());
    EXPECT_EQ(got, sent);
    EXPECT_FALSE(send->is_done());
    EXPECT_TRUE(send->advance());
    EXPECT_TRUE(send->is_done());
}

TEST(PeerMemory, KeepsTheOrderOfSmallAndLargeTransfers) {
    const auto region = make_introduced_region(2);
    ShmBackend first(region, 0), second(region, 1);
    std::vector<std::byte> sent(large, std::byte{7}), got(large);
    std::byte small_sent{1}, small_got{0};
    const auto large_send = first.start_transfer({Direction::send, 1, sent.data(), large});
    const auto small_send = first.start_transfer({Direction::send, 1, &small_sent, 1});
    const auto large_receive = second.start_transfer({Direction::receive, 0, got.data(), large});
    const auto small_receive = second.start_transfer({Direction::receive, 0, &small_got, 1});
    EXPECT_TRUE(large_send->advance());
    EXPECT_FALSE(small_send->advance());
    EXPECT_TRUE(large_receive->advance());
    EXPECT_TRUE(large_send->advance());
    EXPECT_TRUE(small_send->advance());
    EXPECT_TRUE(small_receive->advance());
    EXPECT_EQ(got, sent);
    EXPECT_EQ(small_got, small_sent);
}

TEST(PeerMemory, FailsATransferOnBothRanksWhenTheMemoryCannotBeRead) {
    const auto region = make_introduced_region(2);
    ShmBackend first(region, 0), second(region, 1);
    const Pages sent(256, 5), got(256);
    const auto send = first.start_transfer({Direction::send, 1, sent.data(), sent.bytes()});
    const auto receive = second.start_transfer({Direction::receive, 0, got.data(), got.bytes()});
    EXPECT_TRUE(send->advance());
    EXPECT_THAT(message_of<ddp::SystemError>([&] { receive->advance(); }),
                AllOf(HasSubstr("in the memory of rank 0"), HasSubstr("Bad address")));
    EXPECT_THAT(message_of<ddp::PeerError>([&] { send->wait_a_little(Deadline::after(60s)); }),
                HasSubstr("rank 1"));
}

TEST(PeerMemory, TakesNothingFromASenderThatGaveUp) {
    const auto region = make_introduced_region(2);
    ShmBackend first(region, 0), second(region, 1);
    std::vector<std::byte> sent(large), got(large);
    const auto send = first.start_transfer({Direction::send, 1, sent.data(), large});
    const auto receive = second.start_transfer({Direction::receive, 0, got.data(), large});
    EXPECT_TRUE(send->advance());
    EXPECT_THROW(send->give_up(Deadline::after(0s)), ddp::TimeoutError);
    EXPECT_THROW(receive->advance(), ddp::TimeoutError);
    EXPECT_FALSE(receive->is_done());
}

// Who is not the root has nothing to do but wait; it gives up while the root still reads.
TEST(SharedMemoryOfAll, IsNotReadWithSuccessOnceItsOwnerGaveUp) {
    std::atomic<bool> gave_up = false;
    for (int attempt = 0; attempt < 20 && !gave_up; ++attempt) {
        // More where the root was done before the other's clock was looked at.
        const std::size_t bytes = std::size_t{128} << (20 + std::min(attempt / 5, 2));
        run_threads(make_introduced_region(2), [&](int rank, ShmBackend& backend) {
            const auto memory = backend.provide_memory(
                {.kind = Collective::allocate, .elements = bytes}, 2, Deadline::after(60s));
            const Call call{.kind = Collective::reduce,
                            .elements = bytes,
                            .input = memory.get(),
                            .output = memory.get()};
            backend.run({.kind = Collective::barrier}, 3, Deadline::after(60s));
            try {
                backend.run(call, 4, Deadline::after(rank == 1 ? 2ms : 60s));
                EXPECT_FALSE(rank == 0 && gave_up) << "success, with whatever is there now";
            } catch (const ddp::TimeoutError&) {
                if (rank == 1) gave_up = true;
            }
        });
    }
    EXPECT_TRUE(gave_up) << "the root was always done in time";
}

TEST(PeerMemory, RefusesALargeTransferOfAnotherSize) {
    const auto region = make_introduced_region(2);
    ShmBackend first(region, 0), second(region, 1);
    std::vector<std::byte> sent(large), got(large);
    const auto send = first.start_transfer({Direction::send, 1, sent.data(), large});
    const auto receive = second.start_transfer({Direction::receive, 0, got.data(), large - 1});
    EXPECT_TRUE(send->advance());
    EXPECT_THROW(receive->advance(), ddp::UsageError);
    EXPECT_THROW(send->wait_a_little(Deadline::after(60s)), ddp::UsageError);
}

}  // namespace
