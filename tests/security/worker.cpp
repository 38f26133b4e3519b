// A worker that joins its job when it is told to, shows what it got, and computes.
//
//   reduce GATES     says its store's port, waits for the file GATES/join, joins, says its backend
//                    and which memory files it has mapped, all-reduces until there is GATES/end,
//                    and says that all sums were right
//   tagged TAG GATES joins, gathers the tags of all ranks, and waits for GATES/end: 71 when
//                    a rank of another job is among them
//
// Whatever goes wrong, it is over after two minutes.
#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr unsigned lifetime_s = 120;
constexpr std::chrono::seconds time_to_meet{30};
constexpr int mixed_jobs = 71;
constexpr int wrong_usage = 98;

void say(const std::string& text) {
    const std::string line = text + "\n";
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
}

bool exists(const std::string& file) { return ::access(file.c_str(), F_OK) == 0; }

void wait_for(const std::string& file) {
    const timespec pause{0, 1'000'000};
    while (!exists(file)) ::nanosleep(&pause, nullptr);
}

// "<inode> <name>" of each memfd in /proc/self/maps, a line each.
void say_mapped_memory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const std::size_t name = line.find("/memfd:");
        if (name == line.npos) continue;
        const std::size_t end_of_inode = line.find_last_not_of(' ', name - 1) + 1;
        const std::size_t inode = line.find_last_of(' ', end_of_inode - 1) + 1;
        say("memory " + line.substr(inode, end_of_inode - inode) + " " + line.substr(name));
    }
}

void reduce_once(ddp::ProcessGroup& group) {
    const int size = group.size();
    const int sum = group.all_reduce(group.rank() + 1);
    if (sum != size * (size + 1) / 2) throw ddp::Error("the sum is wrong");
    std::vector<float> values(5000, static_cast<float>(group.rank() + 1));
    group.all_reduce(values).wait();
    for (const float value : values) {
        if (value != static_cast<float>(sum)) throw ddp::Error("an element is wrong");
    }
}

void reduce(const std::string& gates) {
    say("port " + std::string(std::getenv("MASTER_PORT")));
    const char* const name = std::getenv("DDP_AGENT_STORE_SOCKET");
    say("socket " + std::string(name != nullptr ? name : "none") + ".");
    say("ready");
    wait_for(gates + "/join");
    auto group = ddp::init_process_group({.timeout = time_to_meet});
    const std::string me = "rank " + std::to_string(group.rank());
    say_mapped_memory();
    say("joined " + me + " by " + ddp::to_string(group.backend()));
    const timespec pause{0, 1'000'000};
    for (bool more = true; more; ::nanosleep(&pause, nullptr)) {
        reduce_once(group);
        more = group.all_reduce(exists(gates + "/end") ? 0 : 1, ddp::ReduceOp::min) == 1;
    }
    say("right " + me);
}

int tagged(int tag, const std::string& gates) {
    auto group = ddp::init_process_group({.timeout = time_to_meet});
    std::vector<int> mine{tag};
    std::vector<int> tags(static_cast<std::size_t>(group.size()));
    group.all_gather(mine, tags).wait();
    for (const int other : tags) {
        if (other != tag) return mixed_jobs;
    }
    say("joined rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()));
    wait_for(gates + "/end");
    reduce_once(group);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    ::alarm(lifetime_s);
    const std::string_view verb = argc > 1 ? argv[1] : "";
    if (verb == "reduce" && argc == 3) return ddp::run_worker([&] { reduce(argv[2]); });
    if (verb != "tagged" || argc != 4) return wrong_usage;
    int code = 0;
    const int ended = ddp::run_worker([&] { code = tagged(std::atoi(argv[2]), argv[3]); });
    return ended != 0 ? ended : code;
}
