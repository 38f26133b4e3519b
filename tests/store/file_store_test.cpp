// The file store's file: its bytes, writers that die half-way, damage, and other processes.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <random>

#include "base/unique_fd.hpp"
#include "support/seed.hpp"
#include "temp_dir.hpp"
#include "wire_bytes.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using testing::HasSubstr;

const std::string header{"ddp file store\n\x01", 16};

std::string read_file(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}
void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream{path, std::ios::binary} << bytes;
}

TEST(FileStore, WritesTheBytesOfProtocolMd) {
    const TempDir dir;
    const auto path = dir.file("store");
    make_file_store(path)->set("k", "v");
    // zlib.crc32(b"\x01" + struct.pack("<Q", 1) + b"k" + struct.pack("<Q", 1) + b"v")
    EXPECT_EQ(read_file(path), header + u32(19) + u32(0x65A2C01BU) + u8(1) + str("k") + str("v"));
}

TEST(FileStore, AHalfWrittenRecordIsIgnoredAndThenCutOff) {
    const TempDir dir;
    const auto path = dir.file("store");
    make_file_store(path)->set("kept", "1");
    const auto kept = read_file(path);
    make_file_store(path)->multi_set({"lost", "kept"}, {"2", "2"});
    const auto whole = read_file(path);
    for (auto length = kept.size(); length < whole.size(); ++length) {
        write_file(path, whole.substr(0, length));
        const auto store = make_file_store(path, 30s);
        ASSERT_EQ(store->try_get("lost"), std::nullopt) << length;
        ASSERT_EQ(store->get("kept"), "1") << length;
        store->append("kept", "3");
        ASSERT_EQ(make_file_store(path)->get("kept"), "13") << length;
        const auto repaired = read_file(path);
        ASSERT_EQ(repaired.substr(0, kept.size()), kept) << length;
        ASSERT_EQ(repaired.substr(kept.size() + 8), u8(2) + str("kept") + str("3")) << length;
    }
}

TEST(FileStore, AHalfWrittenHeaderIsWrittenAnew) {
    for (std::size_t length = 0; length < header.size(); ++length) {
        const TempDir dir;
        const auto path = dir.file("store");
        write_file(path, header.substr(0, length));
        const auto store = make_file_store(path, 30s);
        EXPECT_EQ(store->num_keys(), 0);
        store->set("k", "v");
        EXPECT_EQ(make_file_store(path)->get("k"), "v");
    }
}

TEST(FileStore, ALastRecordWithAWrongChecksumCountsAsHalfWritten) {
    const TempDir dir;
    const auto path = dir.file("store");
    make_file_store(path)->set("k", "v");
    auto bytes = read_file(path);
    bytes.back() = 'w';
    write_file(path, bytes);
    EXPECT_FALSE(make_file_store(path)->check({"k"}));
}

TEST(FileStore, DamageBeforeTheEndIsAnErrorThatNamesFileAndPlace) {
    const TempDir dir;
    const auto path = dir.file("store");
    make_file_store(path)->set("a", "1");
    const auto first_end = read_file(path).size();
    make_file_store(path)->set("b", "2");
    const auto good = read_file(path);
    for (auto at = header.size() + 4; at < first_end; ++at) {  // the checksum and what it covers
        auto bytes = good;
        bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
        write_file(path, bytes);
        try {
            make_file_store(path);
            FAIL() << "did not notice the change at " << at;
        } catch (const SystemError& error) {
            EXPECT_EQ(error.code(), EBADMSG);
            EXPECT_THAT(error.what(), HasSubstr(path + " is damaged at byte 16"));
        }
    }
}

TEST(FileStore, AnotherKindOfFileIsRefusedAndLeftAlone) {
    const TempDir dir;
    const auto path = dir.file("store");
    write_file(path, "precious text");
    EXPECT_THROW(make_file_store(path), SystemError);
    EXPECT_EQ(read_file(path), "precious text");
}

TEST(FileStore, AFileThatCannotBeOpenedIsNamed) {
    const TempDir dir;
    const auto path = dir.file("no such folder/store");
    try {
        make_file_store(path);
        FAIL() << "opened a file in a folder that is not there";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_THAT(error.what(), HasSubstr(path));
    }
}

TEST(FileStore, ALockHeldForTooLongIsATimeout) {
    const TempDir dir;
    const auto path = dir.file("store");
    const auto store = make_file_store(path, 50ms);
    const base::UniqueFd other{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    EXPECT_THROW(store->set("k", "v"), TimeoutError);
    ASSERT_EQ(::flock(other.get(), LOCK_UN), 0);
    store->set("k", "v");
    EXPECT_EQ(store->get("k", 30s), "v");
}

// The file is open, but what is behind the descriptor can no longer be read.
TEST(FileStore, AReadThatFailsIsNamed) {
    const TempDir dir;
    const auto path = dir.file("store");
    const auto other = make_file_store(path);
    base::UniqueFd blind{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    const base::UniqueFd next{::dup(blind.get())};
    const int its_fd = next.get() + 1;  // which the store takes
    const auto store = make_file_store(path);
    other->set("k", "v");
    ASSERT_EQ(::dup3(blind.get(), its_fd, O_CLOEXEC), its_fd);
    try {
        static_cast<void>(store->get("k", 1s));
        FAIL() << "read what cannot be read";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EBADF);
        EXPECT_THAT(error.what(), HasSubstr("store: read " + path));
    }
}

TEST(FileStore, LooksMoreAndMoreSeldomWhileItWaits) {
    const auto used = [] {
        timespec time{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
    };
    const TempDir dir;
    const auto store = make_file_store(dir.file("store"));
    const auto before = used();
    EXPECT_THROW(store->wait({"k"}, 1s), TimeoutError);
    EXPECT_LT(used() - before, 100ms);
}

TEST(FileStore, ManyLargeValuesAreReadBack) {
    const TempDir dir;
    const auto path = dir.file("store");
    const auto writer = make_file_store(path);
    for (int i = 0; i < 5; ++i) {
        writer->set(std::to_string(i), std::string(3 << 20, static_cast<char>('a' + i)));
    }
    const auto reader = make_file_store(path);
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(reader->get(std::to_string(i)) ==
                    std::string(3 << 20, static_cast<char>('a' + i)));
    }
}

TEST(FileStore, AForkedChildIsToldToOpenItAnew) {
    const TempDir dir;
    const auto store = make_file_store(dir.file("store"), 30s);
    const auto child = ::fork();
    if (child == 0) {
        try {
            store->set("from", "child");
        } catch (const UsageError&) {
            ::_exit(42);
        }
        ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
    EXPECT_FALSE(store->check({"from"}));
}

// Runs `body` in a child that ends without the parent's clean-up.
template <class Body>
pid_t start_child(Body body) {
    const auto child = ::fork();
    if (child == 0) {
        body();
        ::_exit(0);
    }
    return child;
}

TEST(FileStore, ProcessesShareItAndTheirSumsAreExact) {
    const TempDir dir;
    const auto path = dir.file("store");
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
        children.push_back(start_child([&] {
            const auto store = make_file_store(path, 60s);
            store->wait({"go"});
            for (int n = 0; n < 200; ++n) store->add("n", 1);
        }));
    }
    const auto store = make_file_store(path, 60s);
    store->set("go", "");
    for (const auto child : children) {
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(store->get("n"), "600");
}

TEST(FileStore, AKilledWriterLeavesAStoreThatWorks) {
    std::mt19937 random{random_seed()};
    for (int round = 0; round < 10; ++round) {
        const TempDir dir;
        const auto path = dir.file("store");
        const auto store = make_file_store(path, 60s);
        const auto child = start_child([&] {
            const auto own = make_file_store(path, 60s);
            while (true) {
                own->multi_set({"a", "b"}, StoreValues(2, std::to_string(own->add("n", 1))));
            }
        });
        const auto enough = static_cast<std::int64_t>(random() % 50 + 1);
        while (store->add("n", 0) < enough) {
        }
        ASSERT_EQ(::kill(child, SIGKILL), 0);
        ASSERT_EQ(::waitpid(child, nullptr, 0), child);
        const auto reader = make_file_store(path, 60s);
        const auto pair = reader->try_get("a");
        EXPECT_EQ(pair, reader->try_get("b"));  // a multi_set is there whole or not at all
        const auto sum = reader->add("n", 0);
        EXPECT_GE(sum, enough);
        EXPECT_EQ(store->add("n", 1), sum + 1);
    }
}

}  // namespace
}  // namespace ddp
