#include "doctor/all_hosts.hpp"

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/worker_env.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/net/socket.hpp"

namespace ddp::doctor {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

constexpr int pings = 64;
constexpr std::size_t summed = std::size_t{4} << 20;  // float32
constexpr int sums = 3;                               // of which the fastest counts

std::string text_of(const Findings& findings) {
    json all = json::array();
    for (const Finding& one : findings) {
        all.push_back({one.check, static_cast<int>(one.level), one.says, one.remedy});
    }
    // What other programs have said may be no UTF-8.
    return json{{"host", base::host_name()}, {"findings", all}}.dump(
        -1, ' ', false, json::error_handler_t::replace);
}

HostFacts facts_in(const std::string& text) {
    const json told = json::parse(text);
    HostFacts facts{.host = told.at("host").get<std::string>()};
    for (const json& one : told.at("findings")) {
        facts.findings.push_back({one.at(0).get<std::string>(),
                                  static_cast<Level>(one.at(1).get<int>()),
                                  one.at(2).get<std::string>(), one.at(3).get<std::string>()});
    }
    return facts;
}

// By rank.
std::vector<std::string> gather(ProcessGroup& group, const std::string& text) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::array<std::int64_t, 1> own{static_cast<std::int64_t>(text.size())};
    std::vector<std::int64_t> sizes(ranks);
    group.all_gather(own, sizes).wait();
    const auto widest = static_cast<std::size_t>(std::ranges::max(sizes));
    std::vector<std::uint8_t> bytes(widest);
    std::memcpy(bytes.data(), text.data(), text.size());
    std::vector<std::uint8_t> all(widest * ranks);
    group.all_gather(bytes, all).wait();
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto* const begin = reinterpret_cast<const char*>(all.data() + rank * widest);
        texts.emplace_back(begin, static_cast<std::size_t>(sizes[rank]));
    }
    return texts;
}

std::int64_t clock_of_the_day() {
    return nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

// On rank 0, of another: by the fastest of many questions.
void ask_for_time(ProcessGroup& group, int rank, HostFacts& facts) {
    std::array<std::int64_t, 1> time{};
    facts.round_trip = nanoseconds::max();
    for (int i = 0; i < pings; ++i) {
        const std::int64_t asked = clock_of_the_day();
        const auto began = std::chrono::steady_clock::now();
        group.send(time, Peer{rank}).wait();
        group.recv(time, Peer{rank}).wait();
        const nanoseconds took = std::chrono::steady_clock::now() - began;
        if (took >= facts.round_trip) continue;
        facts.round_trip = took;
        facts.clock_ahead = nanoseconds(time[0] - asked) - took / 2;
    }
}
void tell_time(ProcessGroup& group) {
    std::array<std::int64_t, 1> time{};
    for (int i = 0; i < pings; ++i) {
        group.recv(time, Peer{0}).wait();
        time[0] = clock_of_the_day();
        group.send(time, Peer{0}).wait();
    }
}

SumOfAll add_up(ProcessGroup& group) {
    SumOfAll result{.bytes = summed * sizeof(float), .time = nanoseconds::max()};
    std::vector<float> values(summed);
    for (int i = 0; i < sums; ++i) {
        std::ranges::fill(values, 1.0F);
        group.barrier().wait();
        const auto began = std::chrono::steady_clock::now();
        group.all_reduce(values).wait();
        result.time = std::min<nanoseconds>(result.time, std::chrono::steady_clock::now() - began);
        const auto expected = static_cast<float>(group.size());
        result.is_right = result.is_right && std::ranges::all_of(values, [&](float value) {
                              return value == expected;
                          });
    }
    std::array<std::int32_t, 1> is_right{result.is_right ? 1 : 0};
    group.all_reduce(is_right, ReduceOp::min).wait();
    result.is_right = is_right[0] != 0;
    return result;
}

}  // namespace

Findings check_all_hosts(Findings here) {
    if (worker_env().world_size < 2) {
        throw UsageError(
            "--all-hosts takes a job with a rank on each host: ddp-launch "
            "--hosts=h1,h2 --nproc_per_node=1 ddp-doctor --all-hosts");
    }
    // No shared memory, also where two are on one host: it is the network that counts.
    ProcessGroup group = init_process_group({.backend = Backend::gloo});
    std::vector<HostFacts> hosts;
    for (const std::string& text : gather(group, text_of(here))) hosts.push_back(facts_in(text));
    for (int rank = 1; rank < group.size(); ++rank) {
        if (group.rank() == 0) ask_for_time(group, rank, hosts[static_cast<std::size_t>(rank)]);
        if (group.rank() == rank) tell_time(group);
        group.barrier().wait();
    }
    const SumOfAll sum = add_up(group);
    return group.rank() == 0 ? judge_hosts(hosts, sum) : Findings{};
}

}  // namespace ddp::doctor
