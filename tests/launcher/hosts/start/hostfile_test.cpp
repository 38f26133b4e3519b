// Lists of hosts as Open MPI, MPICH, DeepSpeed and Slurm write them, and what is wrong in one.
#include "launcher/hosts/start/hostfile.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Hosts = std::vector<HostSlots>;
using Names = std::vector<std::string>;

Hosts of_file(std::string_view text) { return parse_hostfile(text, "hosts.txt"); }
Hosts of_option(const std::string& text) { return parse_hosts({"--hosts", text}); }
Names of_slurm(const std::string& text) { return expand_nodelist({"$SLURM_STEP_NODELIST", text}); }

template <class Parse>
std::string error_of(Parse parse, const std::string& text) {
    try {
        parse(text);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no error";
}

TEST(Hostfile, IsReadInTheFormsOfOtherLaunchers) {
    struct Row {
        const char* what;
        const char* text;
        Hosts expected;
    };
    const std::vector<Row> rows{
        {"names alone", "h1\nh2\n", {{"h1", {}}, {"h2", {}}}},
        {"DeepSpeed", "worker-1 slots=4\nworker-2 slots=2\n", {{"worker-1", 4}, {"worker-2", 2}}},
        {"Open MPI", "h1 slots=4 max_slots=8\nh2 max-slots=8 slots=4", {{"h1", 4}, {"h2", 4}}},
        {"Open MPI, with blanks", "h1 slots = 4\nh2 slots =4 max_slots= 4", {{"h1", 4}, {"h2", 4}}},
        {"Open MPI, the most alone", "h1 max_slots=3\n", {{"h1", 3}}},
        {"MPICH", "h1:4\nh2:1\n", {{"h1", 4}, {"h2", 1}}},
        {"mixed", "h1:4\nh2 slots=2\nh3", {{"h1", 4}, {"h2", 2}, {"h3", {}}}},
        {"one number, twice", "h1:4 slots=4 slots=4", {{"h1", 4}}},
        {"IPv6",
         "[fe80::1%eth0]:4\n[::1]\n[::ffff:10.0.0.1] slots=2",
         {{"fe80::1%eth0", 4}, {"::1", {}}, {"::ffff:10.0.0.1", 2}}},
        {"IPv4 and a domain",
         "10.77.0.1:2\nnode_1.example.org",
         {{"10.77.0.1", 2}, {"node_1.example.org", {}}}},
        {"comments", "# hosts\nh1 # the first\n  #\nh2:2#two", {{"h1", {}}, {"h2", 2}}},
        {"CR LF and no end", "h1 slots=4\r\n\r\nh2:2\r\nh3\r", {{"h1", 4}, {"h2", 2}, {"h3", {}}}},
        {"tabs and blanks", "\t h1\tslots=4 \t\n   \n\th2:2  ", {{"h1", 4}, {"h2", 2}}},
        {"a byte order mark", "\xEF\xBB\xBFh1:4\n", {{"h1", 4}}},
        {"the most", "h1:4096", {{"h1", 4096}}},
    };
    for (const Row& row : rows) EXPECT_EQ(of_file(row.text), row.expected) << row.what;
}

TEST(Hostfile, AnErrorNamesTheLineAndWhatToWrite) {
    struct Row {
        const char* text;
        const char* place;
        const char* problem;
    };
    const std::vector<Row> rows{
        {"", "hosts.txt: ", "no host in it; write one a line: h1 slots=4"},
        {"# h1\n\n", "hosts.txt: ", "no host in it"},
        {"h1\nh2\n\nh1\n", "hosts.txt:4: ", "h1 comes a second time; write it once"},
        {"h1 slots=2\nH1 slots=2\n", "hosts.txt:2: ", "H1 slots=N"},
        {"h1:0", "hosts.txt:1: ", "\"0\" slots in \"h1:0\"; write a whole number from 1 to 4096"},
        {"h1:", "hosts.txt:1: ", "\"\" slots"},
        {"h1 slots=0", "hosts.txt:1: ", "or leave slots out"},
        {"h1 slots=-1", "hosts.txt:1: ", "\"-1\" slots"},
        {"h1 slots=0x4", "hosts.txt:1: ", "\"0x4\" slots"},
        {"h1 slots=4097", "hosts.txt:1: ", "\"4097\" slots"},
        {"h1 slots=99999999999999999999", "hosts.txt:1: ", "99999999\" slots"},
        {"h1 slots", "hosts.txt:1: ", "\"\" slots in \"h1 slots\""},
        {"h1 slots=", "hosts.txt:1: ", "\"\" slots"},
        {"h1:4 slots=2", "hosts.txt:1: ", "says both 4 and 2 slots; write the number once"},
        {"h1 slots=4 slots=2", "hosts.txt:1: ", "says both 4 and 2 slots"},
        {"h1 slots=4 max_slots=2", "hosts.txt:1: ", "more slots than max_slots"},
        {"h1\nh2 slotz=2", "hosts.txt:2: ", "\"slotz\" is unknown"},
        {"h1 h2", "hosts.txt:1: ", "\"h2\" is unknown; after a host only slots=N"},
        {"h1 =4", "hosts.txt:1: ", "\"\" is unknown"},
        {"h1:4 binding=user:0,1", "hosts.txt:1: ", "binding cannot be honoured"},
        {"h1:4 ifname=eth0", "hosts.txt:1: ", "the address that the host has at that interface"},
        {"h1 user=bob", "hosts.txt:1: ", "~/.ssh/config"},
        {"h1 count=4", "hosts.txt:1: ", "write slots=N"},
        {"bob@h1 slots=2", "hosts.txt:1: ", "write the host alone and set the user"},
        {"h1 :2", "hosts.txt:1: ", "\":2\" is unknown"},
        {":2", "hosts.txt:1: ", "\"\" is no host's name"},
        {"-h1", "hosts.txt:1: ", "\"-h1\" is no host's name"},
        {"+n1", "hosts.txt:1: ", "\"+n1\" is no host's name"},
        {"h1,h2", "hosts.txt:1: ", "\"h1,h2\" is no host's name"},
        {"fe80::1", "hosts.txt:1: ", "write [fe80::1] or [fe80::1]:4"},
        {"h1:2:3", "hosts.txt:1: ", "\"h1:2:3\" may be an address"},
        {"[fe80::1", "hosts.txt:1: ", "lacks a ]"},
        {"[h1]:2", "hosts.txt:1: ", "\"h1\" is no IPv6 address"},
        {"[]:2", "hosts.txt:1: ", "is no IPv6 address"},
        {"[fe80::1%]:2", "hosts.txt:1: ", "is no IPv6 address"},
        {"[::1]2", "hosts.txt:1: ", "\"2\" after the ]"},
        {"h\x1b[1m1", "hosts.txt:1: ", "\"h?[1m1\""},
    };
    for (const Row& row : rows) {
        EXPECT_THAT(error_of(of_file, row.text),
                    AllOf(StartsWith(row.place), HasSubstr(row.problem)))
            << row.text;
    }
}

TEST(Hostfile, AnErrorShowsNoMoreThanTheBeginningOfALongLine) {
    EXPECT_LT(error_of(of_file, std::string(100'000, '!')).size(), 300U);
}

TEST(Hosts, AreTheSameFormsBetweenCommas) {
    EXPECT_EQ(of_option("h1:4,h2:4"), (Hosts{{"h1", 4}, {"h2", 4}}));
    EXPECT_EQ(of_option("h1, h2:2 ,[fe80::1]:3"), (Hosts{{"h1", {}}, {"h2", 2}, {"fe80::1", 3}}));
    EXPECT_EQ(of_option("h1"), (Hosts{{"h1", {}}}));
}

TEST(Hosts, AnErrorNamesTheEntryAndWhatToWrite) {
    struct Row {
        const char* text;
        const char* expected;
    };
    const std::vector<Row> rows{
        {"", "--hosts: \"\" is not a list of hosts: h1:4,h2:4"},
        {"h1:4,h2:4,h1:4", "--hosts, entry 3: h1 comes a second time"},
        {"h1:4,", "--hosts, entry 2: \"\" is no host's name"},
        {",h1:4", "--hosts, entry 1: \"\" is no host's name"},
        {"h1:4,h2:0", "--hosts, entry 2: \"0\" slots in \"h2:0\""},
        {"h1 slots=4", "--hosts, entry 1: \"h1 slots=4\" is no host's name; write h1, h1:4"},
        {"h1;h2", "--hosts, entry 1: \"h1;h2\" is no host's name"},
        {"fe80::1", "--hosts, entry 1: \"fe80::1\" may be an address or a host and slots"},
    };
    for (const Row& row : rows) {
        EXPECT_THAT(error_of(of_option, row.text), StartsWith(row.expected)) << row.text;
    }
}

// As libslurm 22.05 expands them, but for text after the last bracket, which later ones have.
TEST(SlurmNodelist, IsExpandedAsScontrolDoes) {
    struct Row {
        const char* text;
        Names expected;
    };
    const std::vector<Row> rows{
        {"h1", {"h1"}},
        {"n[1-2]", {"n1", "n2"}},
        {"node[01-03,7]", {"node01", "node02", "node03", "node7"}},
        {"n[08-12]", {"n08", "n09", "n10", "n11", "n12"}},
        {"n[9-10,001]", {"n9", "n10", "n001"}},
        {"n[1-003]", {"n1", "n2", "n3"}},
        {"n[007]", {"n007"}},
        {"gpu-a[1-2]b", {"gpu-a1b", "gpu-a2b"}},
        {"a[1-2]b[3-4]", {"a1b3", "a1b4", "a2b3", "a2b4"}},
        {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
        {"n10,n9", {"n10", "n9"}},
        {"h1,node[1-2],x.example.org", {"h1", "node1", "node2", "x.example.org"}},
        {"[1-2]", {"1", "2"}},
    };
    for (const Row& row : rows) EXPECT_EQ(of_slurm(row.text), row.expected) << row.text;
    EXPECT_EQ(of_slurm("n[1-65536]").size(), 65'536U);
}

TEST(SlurmNodelist, IsRefusedWhenItIsNone) {
    for (const char* bad : {"",
                            ",",
                            "n1,",
                            "n1,,n2",
                            ",n1",
                            "n[1",
                            "n]",
                            "n[]",
                            "n[3-1]",
                            "n[a-c]",
                            "n[1-]",
                            "n[-1]",
                            "n[1,]",
                            "n[,1]",
                            "n[1,,2]",
                            "n[1--2]",
                            "n[1-2-3]",
                            "n[[1]]",
                            "n1 n2",
                            "n[1 ]",
                            "n[1-65537]",
                            "n[0-999999999]",
                            "n[1-9999999999]",
                            "n[1-300][1-300]",
                            "a[1-65536],b",
                            "n\n",
                            "(null)"}) {
        EXPECT_THAT(error_of(of_slurm, bad),
                    AllOf(StartsWith("$SLURM_STEP_NODELIST: "), HasSubstr("node[01-03,7],gpu1")))
            << bad;
    }
}

std::string padded(int number, int width) {
    std::string text = std::to_string(number);
    if (text.size() < static_cast<std::size_t>(width)) {
        text.insert(0, static_cast<std::size_t>(width) - text.size(), '0');
    }
    return text;
}

// The ranges of sorted numbers, all of one width: "001-003,007".
std::string compress(const std::vector<int>& numbers, int width) {
    std::string text;
    for (std::size_t first = 0; first < numbers.size();) {
        std::size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + padded(numbers[first], width);
        if (last > first) text += "-" + padded(numbers[last], width);
        first = last + 1;
    }
    return text;
}

TEST(SlurmNodelist, ExpandsToTheHostsThatWereCompressed) {
    const auto seed = std::random_device{}();
    std::cout << "seed " << seed << "\n";
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int round = 0; round < 500; ++round) {
        std::string text;
        Names expected;
        for (int group = draw(1, 4); group > 0; --group) {
            const std::string prefix = std::string(1, static_cast<char>('a' + group)) + "-";
            const std::string suffix = draw(0, 2) == 0 ? "-ib" : "";
            const int width = draw(1, 4);
            std::set<int> chosen;
            for (int count = draw(1, 40); count > 0; --count) chosen.insert(draw(0, 150));
            const std::vector<int> numbers(chosen.begin(), chosen.end());
            text += (text.empty() ? "" : ",") + prefix + "[" + compress(numbers, width) + "]";
            text += suffix;
            for (const int number : numbers) {
                expected.push_back(prefix + padded(number, width) + suffix);
            }
        }
        ASSERT_EQ(of_slurm(text), expected) << text;
    }
}

TEST(HostLists, RandomTextIsReadOrRefused) {
    const auto seed = std::random_device{}();
    std::cout << "seed " << seed << "\n";
    std::mt19937 random(seed);
    const std::vector<std::string> pieces{
        "h", "1",     "23",         "[", "]",  "-", ",",  ":", "=", " ",           "\n",
        "#", "slots", "max_slots=", "%", "\r", "@", "::", "0", ".", "\xEF\xBB\xBF"};
    std::size_t read = 0;
    for (int round = 0; round < 10'000; ++round) {
        std::string text;
        for (auto count = random() % 12; count > 0; --count) {
            const bool any = random() % 10 == 0;
            text += any ? std::string(1, static_cast<char>(random()))
                        : pieces[random() % pieces.size()];
        }
        for (auto* const parse : {+[](const std::string& s) { return of_file(s).size(); },
                                  +[](const std::string& s) { return of_option(s).size(); },
                                  +[](const std::string& s) { return of_slurm(s).size(); }}) {
            try {
                EXPECT_GT(parse(text), 0U) << text;
                ++read;
            } catch (const UsageError&) {
            }
        }
    }
    EXPECT_GT(read, 100U) << "no text was right";
}

}  // namespace
}  // namespace ddp::launcher
