// What ddp-doctor makes of several hosts, and of how GPUs are connected.
#include "doctor/all_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddp::doctor {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

auto found(const std::string& check, Level level, const std::string& part) {
    return AllOf(Field("check", &Finding::check, check), Field("level", &Finding::level, level),
                 Field("says", &Finding::says, HasSubstr(part)));
}

constexpr SumOfAll fine{.is_right = true, .bytes = 16U << 20, .time = 10ms};

std::vector<HostFacts> three_hosts() {
    const Findings same{{"libraries", Level::ok, "ddp 0.1.0"}, {"NCCL", Level::ok, "2.18.5"}};
    return {{.host = "h1", .findings = same},
            {.host = "h2", .findings = same, .clock_ahead = 300us, .round_trip = 80us},
            {.host = "h3", .findings = same, .clock_ahead = -200us, .round_trip = 200us}};
}

TEST(DoctorHosts, ThatAreAlikeAreFine) {
    EXPECT_THAT(
        judge_hosts(three_hosts(), fine),
        ElementsAre(found("hosts", Level::ok, "h1, h2, h3"),
                    found("clocks", Level::ok, "at most 0.5 ms (give or take 0.14 ms) apart"),
                    found("network", Level::ok, "there and back in 0.08 ms (h2) to 0.2 ms (h3)"),
                    found("all ranks", Level::ok, "16 MiB in 10 ms (each sends 2.24 GB/s)")));
}

TEST(DoctorHosts, TellWhatIsWrongWithEach) {
    std::vector<HostFacts> hosts = three_hosts();
    hosts[1].findings.push_back({"memory", Level::warn, "124 MiB left", "take less"});
    hosts[2].findings.push_back({"kernel", Level::fail, "no pidfds", "a newer kernel"});
    hosts[2].findings.push_back({"port", Level::note, "taken"});
    hosts.push_back(hosts[1]);  // a second rank there
    const Findings all = judge_hosts(hosts, fine);
    EXPECT_THAT(all, Contains(found("memory", Level::warn, "h2: 124 MiB left")).Times(1));
    EXPECT_THAT(all, Contains(found("hosts", Level::ok, "h1, h2, h3")));
    EXPECT_THAT(all, Contains(AllOf(found("kernel", Level::fail, "h3: no pidfds"),
                                    Field("remedy", &Finding::remedy, "a newer kernel"))));
    EXPECT_THAT(all, Not(Contains(Field("check", &Finding::check, "port"))));
    EXPECT_FALSE(is_fit(all));
}

TEST(DoctorHosts, ThatDifferAreNamed) {
    std::vector<HostFacts> hosts = three_hosts();
    hosts[2].findings[1].says = "2.19.3";
    for (int i = 0; i < 8; ++i) hosts[0].findings.push_back({"GPUs", Level::ok, "NVIDIA H200"});
    const Findings all = judge_hosts(hosts, fine);
    EXPECT_THAT(all, Contains(found("NCCL", Level::warn,
                                    "not the same everywhere: h1, h2: 2.18.5; h3: 2.19.3")));
    EXPECT_THAT(all, Contains(found("GPUs", Level::note, "h1: 8 x NVIDIA H200; h2, h3: nothing")));
    EXPECT_THAT(all, Not(Contains(found("libraries", Level::note, ""))));
}

TEST(DoctorHosts, ThatAreStoppedByQuotasNowAndThenAreAlike) {
    std::vector<HostFacts> hosts = three_hosts();
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        hosts[i].findings.push_back({"processors", Level::ok, "2 of 2 CPUs usable"});
        hosts[i].findings.push_back(
            {"processors", Level::warn, "stopped " + std::to_string(i) + " times"});
    }
    EXPECT_THAT(judge_hosts(hosts, fine), Not(Contains(found("processors", Level::note, ""))));
}

TEST(DoctorHosts, WhoseClocksAreApartAreNamed) {
    std::vector<HostFacts> hosts = three_hosts();
    hosts[2].clock_ahead = 2500ms;
    EXPECT_THAT(judge_hosts(hosts, fine),
                Contains(found("clocks", Level::warn, "h3's is 2.5e+03 ms")));
    // Not where the network is too slow to tell.
    hosts[2].clock_ahead = 110ms;
    hosts[2].round_trip = 100ms;
    EXPECT_THAT(judge_hosts(hosts, fine), Contains(found("clocks", Level::ok, "at most 110 ms")));
}

TEST(DoctorHosts, WhoseSumsAreWrongAreNotFit) {
    const Findings all = judge_hosts(three_hosts(), {.is_right = false, .bytes = 1, .time = 1ms});
    EXPECT_THAT(all, Contains(found("all ranks", Level::fail, "their sums are wrong")));
}

TEST(DoctorHosts, ThatAreOneAreNoted) {
    std::vector<HostFacts> hosts = three_hosts();
    for (HostFacts& host : hosts) host.host = "h1";
    EXPECT_THAT(judge_hosts(hosts, fine),
                Contains(found("hosts", Level::note, "all ranks are on h1")));
}

// As the program prints it, with a header that is underlined.
std::string topology(const std::vector<std::string>& rows) {
    std::string text = "\t\033[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tGPU NUMA ID\033[0m\n";
    for (const std::string& row : rows) text += row + "\n";
    return text + "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n";
}

TEST(DoctorGpuLinks, AreNvLinkEverywhere) {
    EXPECT_THAT(
        judge_gpu_links(topology(
            {"GPU0\t X \tNV18\tNV18\tSYS\t0-47\tN/A", "GPU1\tNV18\t X \tNV18\tSYS\t0-47\tN/A",
             "GPU2\tNV18\tNV18\t X \tSYS\t0-47\tN/A", "NIC0\tSYS\tSYS\tSYS\t X \t\t"})),
        ElementsAre(found("GPU links", Level::ok, "3 GPUs, each two by NVLink (NV18)")));
}

TEST(DoctorGpuLinks, ThatAreOfSeveralKindsAreCounted) {
    EXPECT_THAT(
        judge_gpu_links(
            topology({"GPU0\t X \tNV4\tSYS\tPIX\t0-47\tN/A", "GPU1\tNV4\t X \tSYS\tPIX\t0-47\tN/A",
                      "GPU2\tSYS\tSYS\t X \tSYS\t0-47\tN/A"})),
        ElementsAre(found("GPU links", Level::note,
                          "3 GPUs: 1 pair by NVLink (such as 0 and 1), 2 pairs by the link between "
                          "processors (SYS) (such as 0 and 2)")));
    EXPECT_THAT(
        judge_gpu_links(topology({"GPU0\t X \tPHB\t", "GPU1\tPHB\t X \t"})),
        ElementsAre(found("GPU links", Level::ok, "2 GPUs, each two by a processor's PCIe")));
    EXPECT_THAT(judge_gpu_links(topology({"GPU0\t X \tSYS\t", "GPU1\tSYS\t X \t"})),
                ElementsAre(found("GPU links", Level::note, "by the link between processors")));
}

TEST(DoctorGpuLinks, MayBeUnknown) {
    EXPECT_THAT(judge_gpu_links("\tGPU0\tCPU Affinity\nGPU0\t X \t0-47\n"), IsEmpty());
    for (const char* text : {"", "GPU0\n", "no devices were found\n", "\t\t\n\033[4m\n"}) {
        EXPECT_THAT(judge_gpu_links(text),
                    ElementsAre(found("GPU links", Level::note, "does not show")))
            << text;
    }
    EXPECT_THAT(judge_gpu_links(topology({"GPU0\t X \tNEW\t", "GPU1\tNEW\t X \t"})),
                ElementsAre(found("GPU links", Level::note, "1 pair by an unknown way")));
}

}  // namespace
}  // namespace ddp::doctor
