// What is Gloo's own beside the collectives that every backend passes: the choice of the network,
// transfers, and how each kind of end reaches every rank.
#include <ddp/testing.hpp>

#include "backends/ends_of_groups.hpp"
#include "backends/gloo/network_address.hpp"
#include "backends/gloo/transport/gloo_library.hpp"
#include "backends/gloo/transport/pairs.hpp"
#if DDP_HAS_UCX
#include "backends/gloo/transport/ucx_library.hpp"
#endif
#include "backends/reduction/reduce.hpp"
#include "base/net/address.hpp"
#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"
#include "process_group/launchers_region.hpp"
#include "process_group/worlds.hpp"
#include "support/exact_inputs.hpp"
#include "support/own_network.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::gloo::AddressChoice;
using ddp::gloo::choose_address;
using ddp::gloo::GlooLibrary;
using ddp::gloo::Interface;
using ddp::testing::exact_input;
using ddp::testing::run_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

const InitOptions over_gloo{.backend = Backend::gloo, .timeout = 20s};

const std::vector<Interface> two_networks{
    {"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}, {"ib0", "10.1.0.5", false}};

std::string refusal(const AddressChoice& choice, const std::vector<Interface>& interfaces) {
    try {
        return "chose " + choose_address(choice, interfaces);
    } catch (const UsageError& error) {
        return error.what();
    }
}

TEST(GlooAddress, IsTheWantedInterfaces) {
    EXPECT_EQ(choose_address({"ib0", false, std::nullopt}, two_networks), "10.1.0.5");
    EXPECT_EQ(choose_address({"ib0,eth0", true, std::nullopt}, two_networks), "10.1.0.5");
    EXPECT_THAT(refusal({"eth7", true, std::nullopt}, two_networks),
                HasSubstr("DDP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) is eth7, but no such network "
                          "interface is up here; there are: lo (127.0.0.1), eth0 (10.0.0.5)"));
}

TEST(GlooAddress, IsLoopbackOnOneHost) {
    const MasterAddress elsewhere{"192.0.2.1", 1};
    EXPECT_EQ(choose_address({std::nullopt, true, elsewhere}, two_networks), "127.0.0.1");
}

TEST(GlooAddress, IsNeverLoopbackBetweenHosts) {
    const MasterAddress here{"127.0.1.1", 1};
    const std::vector<Interface> one_network{
        {"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}, {"eth0", "fd00::5", false}};
    EXPECT_EQ(choose_address({std::nullopt, false, here}, one_network), "10.0.0.5");
    EXPECT_THAT(refusal({std::nullopt, false, here}, two_networks),
                HasSubstr("MASTER_ADDR 127.0.1.1 is loopback here; set DDP_SOCKET_IFNAME to one "
                          "of: eth0 (10.0.0.5), ib0 (10.1.0.5)"));
    EXPECT_THAT(refusal({std::nullopt, false, std::nullopt}, two_networks),
                HasSubstr("there is no MASTER_ADDR"));
}

const std::vector<Interface> all_families{{"lo", "127.0.0.1", true},
                                          {"eth0", "10.0.0.5", false},
                                          {"ib0", "10.1.0.5", false},
                                          {"lo", "::1", true},
                                          {"eth0", "fd00::5", false},
                                          {"lo", "fe80::5%lo", false, true},
                                          {"eth7", "fe80::7%eth7", false, true}};

TEST(GlooAddress, IsTheLaunchersAddressOfThisHost) {
    const struct {
        const char* text;
        std::optional<std::string> found;
    } table[] = {
        {"10.1.0.5", "10.1.0.5"},
        {"fd00::5", "fd00::5"},
        {"FD00:0::5", "fd00::5"},
        {"[fd00::5]", "fd00::5"},
        {"::ffff:10.0.0.5", "10.0.0.5"},
        {"fe80::5%lo", "fe80::5%lo"},
        {"fe80::5%1", "fe80::5%lo"},
        {"[fe80::5%lo]", "fe80::5%lo"},
        {"fe80::7", "fe80::7%eth7"},
        {"fe80::7%lo", std::nullopt},
        {"fe80::5%nonesuch0", std::nullopt},
        {"10.9.0.5", std::nullopt},
        {"127.0.0.1", std::nullopt},
        {"127.0.1.1", std::nullopt},
        {"::1", std::nullopt},
        {"0.0.0.0", std::nullopt},
        {"host-5", std::nullopt},
        {"", std::nullopt},
    };
    for (const auto& row : table) {
        EXPECT_EQ(ddp::gloo::find_outward_address(row.text, all_families), row.found) << row.text;
    }
}

TEST(GlooAddress, IsTheLaunchersUnlessAnInterfaceIsWanted) {
    AddressChoice choice{.on_one_host = false, .host_address = "10.1.0.5"};
    EXPECT_EQ(choose_address(choice, all_families), "10.1.0.5");
    choice.on_one_host = true;  // two hosts of one name
    EXPECT_EQ(choose_address(choice, all_families), "10.1.0.5");
    choice.wanted_interface = "eth0";
    EXPECT_EQ(choose_address(choice, all_families), "10.0.0.5");
}

TEST(GlooAddress, IsChosenAsWithoutTheLaunchersWhereThatIsNotThisHosts) {
    for (const char* stale : {"10.9.0.5", "127.0.0.1", "host-5"}) {
        EXPECT_EQ(choose_address({.on_one_host = true, .host_address = stale}, two_networks),
                  "127.0.0.1");
        EXPECT_THAT(refusal({.on_one_host = false, .host_address = stale}, two_networks),
                    HasSubstr("cannot tell which network leads to the other hosts"));
    }
}

TEST(GlooAddress, OfOneLinkIsChosenOnlyByTheLauncher) {
    const std::vector<Interface> interfaces{{"lo", "127.0.0.1", true},
                                            {"eth7", "fe80::7%eth7", false, true},
                                            {"eth8", "10.0.0.8", false}};
    EXPECT_EQ(choose_address({.on_one_host = false}, interfaces), "10.0.0.8");
    EXPECT_THAT(refusal({.wanted_interface = "eth7"}, interfaces),
                HasSubstr("there are: lo (127.0.0.1), eth8 (10.0.0.8)"));
}

std::vector<char> bytes_of(const char* text, unsigned scope) {
    auto address = ddp::base::numeric_address(text, 4711);
    if (address->family() == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(address->bytes).sin6_scope_id = scope;
    }
    const auto* const begin = reinterpret_cast<const char*>(&address->bytes);
    std::vector<char> bytes(begin, begin + sizeof address->bytes);
    bytes.insert(bytes.end(), {1, 2, 3, 4, 5, 6, 7, 8});  // Gloo's number of the pair
    return bytes;
}

TEST(GlooAddress, OfAPeerOnALinkIsOnThisRanksInterface) {
    using ddp::gloo::with_own_scope;
    const auto own = bytes_of("fe80::1", 4);
    EXPECT_EQ(with_own_scope(bytes_of("fe80::2", 9), own), bytes_of("fe80::2", 4));
    EXPECT_EQ(with_own_scope(bytes_of("fd00::2", 9), own), bytes_of("fd00::2", 9));
    EXPECT_EQ(with_own_scope(bytes_of("10.0.0.2", 0), own), bytes_of("10.0.0.2", 0));
    EXPECT_EQ(with_own_scope(bytes_of("fe80::2", 9), bytes_of("fd00::1", 0)),
              bytes_of("fe80::2", 9));
    EXPECT_EQ(with_own_scope({1, 2, 3}, own), std::vector<char>({1, 2, 3}));
}

bool has_socket_at(const std::string& host) {
    for (int fd = 3; fd < 1000; ++fd) {
        ddp::base::SocketAddress own{.size = sizeof own.bytes};
        auto* const bytes = reinterpret_cast<sockaddr*>(&own.bytes);
        if (::getsockname(fd, bytes, &own.size) == 0 && own.host() == host) return true;
    }
    return false;
}

// Ranks as threads, in a network that has these addresses.
void expect_ranks_to_connect_at(const std::string& address) {
    ::setenv("DDP_HOST_ADDR", address.c_str(), 1);
    const auto store = make_memory_store();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            WorkerEnv me;
            me.rank = rank;
            me.world_size = 2;
            ProcessGroup group = init_process_group(me, store, over_gloo);
            EXPECT_EQ(group.all_reduce(rank + 1), 3);
            EXPECT_TRUE(has_socket_at(address)) << address;
            group.barrier().wait();
        });
    }
    for (std::thread& rank : ranks) rank.join();
}

TEST(GlooBackend, ConnectsRanksByTheLaunchersAddress) {
    for (const std::string address : {"fe80::77%lo", "fd77::1", "10.77.0.1"}) {
        const std::string without_scope = address.substr(0, address.find('%'));
        const bool allowed = ddp::testing::in_own_network(
            {.addresses = {without_scope}}, [&] { expect_ranks_to_connect_at(address); });
        if (!allowed) GTEST_SKIP() << "this host allows no namespaces, or has no IPv6";
    }
}

TEST(GlooBackend, WarnsOnceOfAnAddressThatIsNotThisHosts) {
    const auto body = [](ddp::testing::RankReporter& reporter,
                         const std::function<ProcessGroup()>& join) {
        ::setenv("DDP_HOST_ADDR", "192.0.2.77", 1);
        ::testing::internal::CaptureStderr();
        ProcessGroup group = join();
        ProcessGroup half = group.split({.color = 0});
        EXPECT_EQ(half.all_reduce(1), 2);
        const std::string log = ::testing::internal::GetCapturedStderr();
        const std::string warning = "DDP_HOST_ADDR 192.0.2.77 is no address of this host";
        const std::size_t first = log.find(warning);
        if (first == log.npos) reporter.failure("no warning: " + log);
        if (log.find(warning, first + 1) != log.npos) reporter.failure("twice: " + log);
    };
    EXPECT_TRUE(ddp::testing::failures_of_ranks(2, body, {.init = over_gloo}).empty());
}

TEST(GlooAddress, FindsThisHostsInterfaces) {
    const auto interfaces = ddp::gloo::list_interfaces();
    EXPECT_TRUE(std::any_of(interfaces.begin(), interfaces.end(), [](const Interface& one) {
        return one.loopback && one.address == "127.0.0.1";
    }));
}

TEST(GlooLibrary, SaysWhatIsMissingAndWhatToDo) {
    const std::vector<std::string> names{"libddp-none.so.0", "/nowhere/libddp-none.so",
                                         "libc.so.6"};
    try {
        GlooLibrary::load(names);
        FAIL() << "loaded";
    } catch (const BackendError& error) {
        EXPECT_THAT(error.what(), HasSubstr("libddp-none.so.0: cannot open"));
        EXPECT_THAT(error.what(), HasSubstr("/nowhere/libddp-none.so: cannot open"));
        EXPECT_THAT(error.what(), HasSubstr("libc.so.6: undefined symbol"));
        EXPECT_THAT(error.what(), HasSubstr("install it on this host"));
    }
}

// It is loaded by the first group that needs it, and by nothing else.
TEST(GlooLibrary, IsNotLoadedByGroupsOfShm) {
    const auto is_loaded = [](const char* library) {
        std::ifstream maps("/proc/self/maps");
        const std::string text{std::istreambuf_iterator<char>(maps), {}};
        return text.find(library) != std::string::npos;
    };
    const auto body = [&](ProcessGroup& group) {
        EXPECT_EQ(is_loaded("libgloo") || is_loaded("libucp"), group.backend() == Backend::gloo);
    };
    run_ranks(2, body);
    run_ranks(2, body, {.init = over_gloo});
}

// Of two ranks that have the variable in their environment, with a value each (empty: not): what init
// says, or the names of the transports' libraries that are loaded then, and "warned".
std::vector<std::string> outcomes_with(const std::string& variable, const std::string& first,
                                       const std::string& second,
                                       const std::vector<int>& hosts = {}) {
    const auto body = [&](ddp::testing::RankReporter& reporter,
                          const std::function<ProcessGroup()>& join) {
        const std::string& value = std::getenv("RANK") == std::string("0") ? first : second;
        value.empty() ? ::unsetenv(variable.c_str()) : ::setenv(variable.c_str(), value.c_str(), 1);
        ::testing::internal::CaptureStderr();
        std::string outcome;
        try {
            ProcessGroup group = join();
            if (group.all_reduce(1) != 2) outcome += "a wrong sum ";
            std::ifstream maps("/proc/self/maps");
            const std::string text{std::istreambuf_iterator<char>(maps), {}};
            for (const char* name : {"libgloo", "libucp"}) {
                if (text.find(name) != text.npos) outcome += name;
            }
        } catch (const UsageError& error) {
            outcome = error.what();
        }
        const std::string log = ::testing::internal::GetCapturedStderr();
        if (log.find("as UCX cannot: ") != log.npos) outcome += " warned";
        reporter.failure(outcome);
    };
    std::vector<std::string> outcomes(2);
    for (const auto& failure :
         ddp::testing::failures_of_ranks(2, body, {.init = over_gloo, .hosts = hosts})) {
        outcomes[static_cast<std::size_t>(failure.rank)] = failure.message;
    }
    return outcomes;
}

TEST(GlooTransports, AreWhatTheEnvironmentSaysOnAllRanks) {
    const auto outcomes = [](const std::string& first, const std::string& second) {
        return outcomes_with("DDP_HOST_TRANSPORT", first, second);
    };
#if DDP_HAS_UCX
    EXPECT_THAT(outcomes("ucx", "ucx"), Each(Eq("libucp")));
    EXPECT_THAT(outcomes("ucx", ""), Each(HasSubstr("all ranks are on one host")));
    EXPECT_THAT(outcomes("ucx", "gloo"),
                Each(AllOf(HasSubstr("what DDP_HOST_TRANSPORT says cannot be had on all ranks: "
                                     "rank 1 on host "),
                           HasSubstr("it is gloo there"))));
#else
    EXPECT_THAT(outcomes("", "ucx"), Each(HasSubstr("is built without it")));
#endif
    EXPECT_THAT(outcomes("gloo", ""), Each(Eq("libgloo")));
    EXPECT_THAT(outcomes("auto", ""), Each(Eq("libgloo")));
    EXPECT_THAT(outcomes("tcp", ""), Each(HasSubstr("it is tcp; it can be auto, ucx or gloo")));
}

#if DDP_HAS_UCX
// What UCX shall read as it is loaded is never in the process's environment, which may be none.
TEST(UcxLibrary, LeavesTheEnvironmentAsItIs) {
    EXPECT_EXIT(
        {
            ::setenv("DDP_TEST_OTHER", "kept", 1);
            ddp::gloo::UcxLibrary::load();
            const char* const other = std::getenv("DDP_TEST_OTHER");
            const bool kept = other != nullptr && other == std::string("kept");
            ::_exit(kept && std::getenv("UCX_MEM_EVENTS") == nullptr ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            ::clearenv();
            ddp::gloo::UcxLibrary::load();
            ::_exit(std::getenv("UCX_MEM_EVENTS") == nullptr ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(GlooTransports, AreUcxBetweenHostsUnlessARankCannot) {
    const std::vector<int> two_hosts{1, 1};
    EXPECT_THAT(outcomes_with("DDP_HOST_TRANSPORT", "", "", two_hosts), Each(Eq("libucp")));
    EXPECT_THAT(outcomes_with("DDP_HOST_TRANSPORT", "", "gloo", two_hosts),
                Each(HasSubstr("libgloo")));
    EXPECT_THAT(outcomes_with("UCX_TCP_RX_SEG_SIZE", "", "512k", two_hosts),
                Each(Eq("libgloolibucp")));
    EXPECT_THAT(outcomes_with("UCX_TLS", "self", "self", two_hosts),
                ElementsAre("libgloolibucp warned", "libgloolibucp"));
}
#endif

// Rank 1 runs as another user, as in a container of its own: neither maps the other's memory.
void join_as_two_users(ddp::testing::RankReporter& reporter,
                       const std::function<ProcessGroup()>& join) {
    const std::string rank = std::getenv("RANK");
    if (rank == "1" &&
        (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534))) {
        return reporter.failure("may not change its user");
    }
    try {
        ProcessGroup group = join();
        if (group.backend() != Backend::gloo) reporter.failure("joined without Gloo");
        if (group.all_reduce(group.rank() + 1) != 3) reporter.failure("a wrong sum");
    } catch (const UsageError& error) {
        reporter.failure(error.what());
    }
}

TEST(GlooBackend, IsTakenByRanksOfTwoUsersOnOneHost) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    EXPECT_TRUE(ddp::testing::failures_of_ranks(2, join_as_two_users).empty());
}

TEST(GlooBackend, IsNotTakenByRanksOfTwoUsersThatInsistOnShm) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    const auto failures = ddp::testing::failures_of_ranks(
        2, join_as_two_users, {.init = {.backend = Backend::shm, .timeout = 20s}});
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend shm cannot be had: rank 1 on host "));
        EXPECT_THAT(failure.message,
                    HasSubstr("belongs to user 0, and this process to user 65534"));
    }
}

TEST(GlooBackend, TellsEveryRankWhichRankHasNoSuchInterface) {
    const auto body = [](ddp::testing::RankReporter& reporter,
                         const std::function<ProcessGroup()>& join) {
        ::setenv("DDP_SOCKET_IFNAME", "nonesuch0", 1);
        try {
            join();
        } catch (const UsageError& error) {
            reporter.failure(error.what());
        }
    };
    const auto failures = ddp::testing::failures_of_ranks(2, body, {.init = over_gloo});
    ASSERT_EQ(failures.size(), 2U);
    for (const auto& failure : failures) {
        EXPECT_THAT(failure.message, HasSubstr("backend gloo cannot be had: rank 0 on host "));
        EXPECT_THAT(failure.message, HasSubstr("; rank 1 on host "));
        EXPECT_THAT(failure.message, HasSubstr("is nonesuch0, but no such network interface"));
    }
}

TEST(GlooBackend, AddsInTheOrderOfTheTree) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    run_ranks(3,
              [seed](ProcessGroup& group) {
                  std::mt19937 random(seed + static_cast<unsigned>(group.rank()));
                  std::normal_distribution<float> normal;
                  for (const std::size_t size : {100, 100'003, 3'000'017}) {
                      std::vector<float> values(size);
                      for (float& value : values) value = normal(random);
                      auto over_tcp = values;
                      group.all_reduce(over_tcp).wait();
                      std::vector<float> all(3 * size);
                      group.all_gather(values, all).wait();
                      std::size_t wrong = 0;
                      for (std::size_t i = 0; i < size; ++i) {
                          wrong += over_tcp[i] != all[i] + all[size + i] + all[2 * size + i];
                      }
                      EXPECT_EQ(wrong, 0U) << size;
                  }
              },
              {.init = over_gloo});
}

TensorView view(std::vector<std::uint8_t>& bytes, DType dtype) {
    const auto elements = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
    return {bytes.data(), Shape{elements}, dtype};
}

std::vector<std::uint8_t> random_bytes(std::mt19937& random, std::size_t elements, DType dtype) {
    std::vector<std::uint8_t> bytes(elements * size_of(dtype));
    for (auto& byte : bytes) {
        byte = static_cast<std::uint8_t>(dtype == DType::boolean ? random() % 2 : random());
    }
    // Finite numbers: which of two NaNs a sum keeps, the kernels leave open. Without its highest
    // bit an exponent is never that of a NaN.
    for (std::size_t i = size_of(dtype) - 1; is_floating_point(dtype) && i < bytes.size();
         i += size_of(dtype)) {
        bytes[i] &= 0xbf;
    }
    return bytes;
}

// Every rank's `mine`, reduced here.
std::vector<std::uint8_t> reduced_here(ProcessGroup& group, std::vector<std::uint8_t>& mine,
                                       DType dtype, ReduceOp op) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::uint8_t> all(ranks * mine.size());
    group.all_gather(view(mine, DType::uint8), view(all, DType::uint8)).wait();
    std::vector<const std::byte*> inputs;
    std::vector<double> factors;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        inputs.push_back(reinterpret_cast<const std::byte*>(all.data() + rank * mine.size()));
        if (op.kind == ReduceOp::premul_sum) factors.push_back(0.5 * static_cast<double>(rank + 1));
    }
    std::vector<std::uint8_t> result(mine.size());
    std::byte* const output = reinterpret_cast<std::byte*>(result.data());
    backends::reduce(inputs, {&output, 1}, mine.size() / size_of(dtype), {dtype, op.kind, factors});
    return result;
}

void check_reductions(ProcessGroup& group, std::mt19937& random, DType dtype, ReduceOp op,
                      std::size_t part) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto me = static_cast<std::size_t>(group.rank());
    if (op.kind == ReduceOp::premul_sum) op.factor = 0.5 * static_cast<double>(me + 1);
    auto mine = random_bytes(random, part * ranks, dtype);
    const auto wanted = reduced_here(group, mine, dtype, op);
    const std::string what = std::string(to_string(op)) + " of " + to_string(dtype);

    auto all_reduced = mine;
    group.all_reduce(view(all_reduced, dtype), op).wait();
    EXPECT_TRUE(all_reduced == wanted) << "all_reduce " << what;

    std::vector<std::uint8_t> own(mine.size() / ranks);
    group.reduce_scatter(view(mine, dtype), view(own, dtype), op).wait();
    const auto first = wanted.begin() + static_cast<std::ptrdiff_t>(me * own.size());
    EXPECT_TRUE(std::equal(own.begin(), own.end(), first)) << "reduce_scatter " << what;

    std::vector<std::uint8_t> at_root(mine.size());
    group.reduce(view(mine, dtype), view(at_root, dtype), Root{1}, op).wait();
    EXPECT_TRUE(me != 1 || at_root == wanted) << "reduce " << what;
}

TEST(GlooBackend, ReducesEveryTypeToTheBitsOfTheKernels) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    run_ranks(3,
              [seed](ProcessGroup& group) {
                  std::mt19937 random(seed + static_cast<unsigned>(group.rank()));
                  for (int dtype = 0; dtype <= static_cast<int>(DType::boolean); ++dtype) {
                      for (int op = 0; op <= ReduceOp::premul_sum; ++op) {
                          const auto type = static_cast<DType>(dtype);
                          const ReduceOp reduction = static_cast<ReduceOp::Kind>(op);
                          if (!is_defined(reduction, type)) continue;
                          for (const std::size_t part : {0, 1, 333, 20'000}) {
                              check_reductions(group, random, type, reduction, part);
                          }
                      }
                  }
                  // More than a chunk.
                  check_reductions(group, random, DType::bfloat16, ReduceOp::avg, 3'000'001);
              },
              {.init = over_gloo});
}

// Rank r's value for rank q at index i.
int parcel(int from, int to, std::size_t index) {
    return from * 1'000'000 + to * 100'000 + static_cast<int>(index);
}

TEST(GlooBackend, MovesUnevenParts) {
    run_ranks(4,
              [](ProcessGroup& group) {
                  const int me = group.rank();
                  const auto count = [](int from, int to) {
                      return static_cast<std::size_t>((from * 7 + to * 3) % 5) * 10'000;
                  };
                  std::vector<std::size_t> out;
                  std::vector<std::size_t> in;
                  std::vector<int> input;
                  std::vector<int> wanted;
                  for (int peer = 0; peer < 4; ++peer) {
                      out.push_back(count(me, peer));
                      in.push_back(count(peer, me));
                      for (std::size_t i = 0; i < out.back(); ++i) {
                          input.push_back(parcel(me, peer, i));
                      }
                      for (std::size_t i = 0; i < in.back(); ++i) {
                          wanted.push_back(parcel(peer, me, i));
                      }
                  }
                  std::vector<int> output(wanted.size());
                  group.all_to_all(input, output, SplitSizes{out, in}).wait();
                  EXPECT_TRUE(output == wanted);

                  std::vector<std::size_t> counts;
                  std::vector<int> all;
                  for (int peer = 0; peer < 4; ++peer) {
                      counts.push_back(count(peer, 2));
                      for (std::size_t i = 0; i < counts.back(); ++i) {
                          all.push_back(parcel(peer, 2, i));
                      }
                  }
                  std::vector<int> mine;
                  for (std::size_t i = 0; i < count(me, 2); ++i) mine.push_back(parcel(me, 2, i));
                  std::vector<int> gathered(all.size());
                  group.all_gather(mine, gathered, counts).wait();
                  EXPECT_TRUE(gathered == all);
              },
              {.init = over_gloo});
}

TEST(GlooBackend, GathersAndScattersInPlaceAndNot) {
    run_ranks(
        3,
        [](ProcessGroup& group) {
            const int me = group.rank();
            for (const std::size_t part : {std::size_t{0}, std::size_t{5}, std::size_t{70'001}}) {
                const auto whole = exact_input<int>(9, 3 * part);
                const auto own_first = static_cast<std::ptrdiff_t>(part) * me;
                const std::vector<int> own(
                    whole.begin() + own_first,
                    whole.begin() + own_first + static_cast<std::ptrdiff_t>(part));
                auto input = whole;
                std::vector<int> output(part);
                group.scatter(input, output, Root{2}).wait();
                EXPECT_TRUE(output == own);
                std::vector<int> gathered(3 * part);
                group.gather(output, gathered, Root{1}).wait();
                EXPECT_TRUE(me != 1 || gathered == whole);
                std::vector<int> swapped(3 * part);
                group.all_to_all(input, swapped).wait();
                for (std::size_t i = 0; i < 3 * part; ++i) {
                    ASSERT_EQ(swapped[i], own[i % part]) << i;
                }
                const auto in_place =
                    std::span<int>(input).subspan(static_cast<std::size_t>(own_first), part);
                group.gather(in_place, input, Root{1}).wait();
                EXPECT_TRUE(input == whole);
            }
        },
        {.init = over_gloo});
}

TEST(GlooBackend, AllocatesZeroedPagesOnAWorldOfOneAndOfThree) {
    for (const int ranks : {1, 3}) {
        run_ranks(ranks,
                  [](ProcessGroup& group) {
                      Tensor tensor = group.allocate(Shape{1000}, DType::float32);
                      const auto values = tensor.as<float>();
                      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % 4096, 0U);
                      EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), 1000);
                      EXPECT_EQ(group.all_reduce(1), group.size());
                      EXPECT_EQ(group.backend(), Backend::gloo);
                  },
                  {.init = over_gloo});
    }
}

TEST(GlooBackend, SendsBothDirectionsAtOnceInOrder) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  const int to = (group.rank() + 1) % 3;
                  const int from = (group.rank() + 2) % 3;
                  constexpr std::size_t large = 3'000'000;
                  auto first = exact_input<float>(group.rank(), large);
                  auto second = exact_input<float>(group.rank() + 10, 5);
                  std::vector<float> none;
                  std::vector<float> got_first(large);
                  std::vector<float> got_second(5);
                  Work sent_first = group.send(first, Peer{to});
                  Work sent_none = group.send(none, Peer{to});
                  Work sent_second = group.send(second, Peer{to});
                  Work first_received = group.recv(got_first, Peer{from});
                  Work none_received = group.recv(none, Peer{from});
                  Work second_received = group.recv(got_second, Peer{from});
                  group.barrier().wait();
                  second_received.wait();
                  first_received.wait();
                  none_received.wait();
                  sent_first.wait();
                  sent_none.wait();
                  sent_second.wait();
                  EXPECT_EQ(got_first, exact_input<float>(from, large));
                  EXPECT_EQ(got_second, exact_input<float>(from + 10, 5));
              },
              {.init = over_gloo});
}

TEST(GlooBackend, TellsBothSidesWhenTheirSizesDiffer) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  std::vector<std::uint8_t> data(group.rank() == 0 ? 8 : 16);
                  try {
                      if (group.rank() == 0) group.send(data, Peer{1}).wait();
                      if (group.rank() == 1) group.recv(data, Peer{0}).wait();
                      group.barrier().wait();
                      ADD_FAILURE() << "went on";
                  } catch (const UsageError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("sends 8 bytes to rank 1 (pid "));
                      EXPECT_THAT(error.what(), HasSubstr("which receives 16"));
                  }
              },
              {.init = over_gloo});
}

TEST(GlooBackend, TellsEveryRankWhenTheirCallsDiffer) {
    ddp::testing::expect_different_calls_told(2, {.init = over_gloo});
}

TEST(GlooBackend, TellsEveryRankWhenCountsDoNotMeet) {
    ddp::testing::expect_different_counts_told({.init = over_gloo});
}

TEST(GlooBackend, NamesTheRankThatIsKilledAtARandomMoment) {
    std::mt19937 random(ddp::testing::seed_for_ranks());
    for (int round = 0; round < 12; ++round) {
        const auto delay = std::chrono::microseconds(random() % 50'000);
        ddp::testing::expect_killed_rank_named(4, delay, {.may_die = {2}, .init = over_gloo});
    }
}

TEST(GlooBackend, TellsRanksThatDoNotWaitForTheKilledOne) {
    const auto body = [](ddp::testing::RankReporter&, const std::function<ProcessGroup()>& join) {
        const contract::ControlRegion region = ddp::testing::launchers_region();
        ProcessGroup group = join();
        ddp::testing::kill_when_all_are_here(region, group, 2);  // and have left init
        std::vector<float> values(10);
        try {
            // 0 waits for 1, which waits for nobody before the barrier.
            if (group.rank() == 0) group.recv(values, Peer{1}).wait();
            group.barrier().wait();
            ADD_FAILURE() << "passed without rank 2";
        } catch (const PeerError& error) {
            EXPECT_EQ(error.rank(), 2) << error.what();
        }
    };
    ddp::testing::run_joining_ranks(3, body, {.may_die = {2}, .init = over_gloo});
}

void shut_down_tcp_connections() {
    for (const std::string& name : base::names_in("/proc/self/fd")) {
        const int fd = std::stoi(name);
        if (!base::address_of(fd, base::End::other).host().empty()) ::shutdown(fd, SHUT_RDWR);
    }
}

// Rank 1 lives, and its connections close without a word, as when its last one is lost. The others
// see at once that those of rank 2, which has been killed, have closed, too.
TEST(GlooBackend, BlamesTheProcessThatHasEndedAndNotOneThatLives) {
    const auto body = [](ProcessGroup& group) {
        std::vector<std::int64_t> pids(4);
        pids[static_cast<std::size_t>(group.rank())] = ::getpid();
        const auto signal = [&](std::size_t rank, int number) {
            ::kill(static_cast<pid_t>(pids[rank]), number);
        };
        const auto wait_for_end = [&](std::size_t rank) {  // of all its threads
            const base::UniqueFd process(base::open_pidfd(static_cast<pid_t>(pids[rank])));
            pollfd end{process.get(), POLLIN, 0};
            if (process.get() >= 0) ::poll(&end, 1, -1);
        };
        const auto change_connections = [&] {
            signal(0, SIGSTOP);
            signal(3, SIGSTOP);
            signal(2, SIGKILL);
            wait_for_end(2);
            shut_down_tcp_connections();
            signal(0, SIGCONT);
            signal(3, SIGCONT);
        };
        try {
            group.all_reduce(pids).wait();
            if (group.rank() == 1) change_connections();
            for (;;) group.barrier().wait();
        } catch (const PeerError& error) {
            EXPECT_EQ(error.rank(), 2) << error.what();
            for (const std::size_t other : {0U, 3U}) {
                if (group.rank() == 1) wait_for_end(other);
            }
        }
    };
    run_ranks(4, body, {.may_die = {2}, .init = over_gloo});
}

// The process of rank 1, on every rank.
pid_t process_of_rank_1(ProcessGroup& group) {
    const std::int64_t mine = group.rank() == 1 ? ::getpid() : 0;
    return static_cast<pid_t>(group.all_reduce(mine, ReduceOp::max));
}

// The larger tensor: more is under way than the kernel takes.
TEST(GlooBackend, ThrowsTimeoutErrorWhenAPeerIsStopped) {
    for (const std::size_t size : {1'000'000U, 16'000'000U}) {
        const auto body = [&](ProcessGroup& group) {
            const pid_t stopped = process_of_rank_1(group);
            std::vector<float> values(size);
            try {
                group.barrier().wait();
                if (group.rank() == 0) ::kill(stopped, SIGSTOP);
                for (;;) group.all_reduce(values).wait();
            } catch (const TimeoutError& error) {
                EXPECT_NE(group.rank(), 1);
                EXPECT_THAT(error.what(),
                            HasSubstr("waiting for rank 1 (pid " + std::to_string(stopped)));
            }
            if (group.rank() == 0) ::kill(stopped, SIGKILL);
        };
        run_ranks(3, body, {.may_die = {1}, .init = {.backend = Backend::gloo, .timeout = 1500ms}});
    }
}

TEST(GlooBackend, ThrowsTimeoutErrorWhenATransferIsNotMet) {
    run_ranks(2,
              [](ProcessGroup& group) {
                  const pid_t idle = process_of_rank_1(group);
                  if (group.rank() == 1) ::pause();
                  std::vector<float> values(10);
                  try {
                      group.recv(values, Peer{1}).wait();
                      ADD_FAILURE() << "received";
                  } catch (const TimeoutError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("recv of 40 bytes from rank 1 did not "
                                                          "end within 1.5 s"));
                  }
                  ::kill(idle, SIGKILL);
              },
              {.may_die = {1}, .init = {.backend = Backend::gloo, .timeout = 1500ms}});
}

TEST(GlooBackend, LetsRanksLeaveAtDifferentTimes) {
    for (int round = 0; round < 10; ++round) {
        run_ranks(4,
                  [](ProcessGroup& group) {
                      std::vector<float> values(100'000, 1.0F);
                      group.broadcast(values, Root{group.size() - 1}).wait();
                  },
                  {.init = over_gloo});
    }
}

// Rank 0 has nothing to give or get and leaves while the others are still at it.
TEST(GlooBackend, LetsARankLeaveWhileOthersMoveUnevenParts) {
    constexpr std::size_t large = 400'000'000;
    run_ranks(3,
              [](ProcessGroup& group) {
                  const int me = group.rank();
                  const std::vector<std::size_t> sent{0, 0, me == 1 ? large : 0};
                  const std::vector<std::size_t> received{0, me == 2 ? large : 0, 0};
                  std::vector<std::uint8_t> input(sent[2], 7);
                  std::vector<std::uint8_t> output(received[1]);
                  group.all_to_all(input, output, SplitSizes{sent, received}).wait();
                  EXPECT_TRUE(me != 2 || (output.front() == 7 && output.back() == 7));
              },
              {.init = over_gloo});
}

TEST(GlooBackend, NamesARankThatHasLeftTheGroup) {
    run_ranks(3,
              [](ProcessGroup& group) {
                  if (group.rank() == 1) return;
                  try {
                      group.barrier().wait();
                      ADD_FAILURE() << "passed without rank 1";
                  } catch (const PeerError& error) {
                      EXPECT_EQ(error.rank(), 1);
                      EXPECT_THAT(error.what(), HasSubstr("has left the group before barrier"));
                  }
              },
              {.init = over_gloo});
}

}  // namespace
