// ddp-doctor: whether this host is fit for jobs of ddp, and what to do where it is not.
#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <boost/program_options.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "contract/exit_code.hpp"
#include "doctor/all_hosts.hpp"
#include "doctor/checks.hpp"

namespace {

namespace po = boost::program_options;
using namespace ddp::doctor;

constexpr std::uint16_t usual_port = 29500;  // torchrun's

po::options_description option_table() {
    po::options_description table("options");
    table.add_options()("json", "print one JSON object")("no-ranks",
                                                         "do not start two ranks that prove it")(
        "all-hosts",
        "of a job with a rank on each host: compare them, their clocks and their network")(
        "help", "show this text")("version", "show the version");
    return table;
}

std::string help_text() {
    std::ostringstream text;
    text << "Looks whether this host is fit for ddp-launch and its jobs, and says what to do\n"
            "where it is not.\n\nusage: ddp-doctor [options]\n"
            "       ddp-launch --hosts=h1,h2 --nproc_per_node=1 ddp-doctor --all-hosts\n\n"
         << option_table()
         << "\nExit code: 0, 1 when something will make jobs fail, 2 for a wrong option.\n";
    return text.str();
}

po::variables_map parse(int argc, char** argv) {
    po::variables_map given;
    try {
        // No abbreviations, and nothing but options.
        const auto style =
            po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
        po::store(po::command_line_parser(argc, argv)
                      .options(option_table())
                      .positional({})
                      .style(style)
                      .run(),
                  given);
    } catch (const po::error& error) {
        throw ddp::UsageError(std::string(error.what()) + "; --help shows the options");
    }
    return given;
}

// Beyond this host itself: two ranks that prove it, or a job of which this is one.
enum class Beyond : std::uint8_t { nothing, two_ranks, hosts };

// A check that cannot be made, for want of a process or a descriptor, has found that.
Findings examine(Beyond beyond) {
    std::vector<std::pair<const char*, std::function<Findings()>>> checks{
        {"processors", [] { return check_processors(); }},
        {"memory", [] { return check_memory(); }},
        {"shared memory", [] { return check_shared_memory(); }},
        {"limits", [] { return check_limits(); }},
        {"kernel", [] { return check_kernel(); }},
        {"network", [] { return check_network(); }},
        {"clock", [] { return check_clock(); }},
        {"libraries", [] { return check_libraries(); }},
        {"GPUs", [] { return check_gpus(); }},
    };
    // The job itself may hold it.
    if (beyond != Beyond::hosts) checks.emplace_back("port", [] { return check_port(usual_port); });
    if (beyond == Beyond::two_ranks) {
        checks.emplace_back("two ranks", [] {
            return check_two_ranks(std::filesystem::read_symlink("/proc/self/exe").parent_path());
        });
    }
    Findings all;
    for (const auto& [name, check] : checks) {
        try {
            std::ranges::move(check(), std::back_inserter(all));
        } catch (const std::exception& error) {
            all.push_back(
                {name, Level::fail, std::string("this could not be looked at: ") + error.what()});
        }
    }
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a limit of files is a finding
    try {
        const po::variables_map given = parse(argc, argv);
        if (given.contains("help")) {
            std::cout << help_text() << std::flush;
        } else if (given.contains("version")) {
            std::cout << "ddp-doctor " << DDP_VERSION << std::endl;
        } else {
            const bool of_hosts = given.contains("all-hosts");
            const Beyond beyond = of_hosts                     ? Beyond::hosts
                                  : given.contains("no-ranks") ? Beyond::nothing
                                                               : Beyond::two_ranks;
            Findings findings = examine(beyond);
            if (of_hosts) findings = check_all_hosts(std::move(findings));
            if (findings.empty()) return ddp::contract::exit_ok;  // another rank's business
            const std::string when_fit = of_hosts ? "these hosts are fit" : "this host is fit";
            std::cout << (given.contains("json") ? as_json(findings) : as_text(findings, when_fit))
                      << std::flush;
            if (!is_fit(findings)) return ddp::contract::exit_error;
        }
        return std::cout ? ddp::contract::exit_ok : ddp::contract::exit_error;
    } catch (const ddp::UsageError& error) {
        std::fprintf(stderr, "ddp-doctor: %s\n", error.what());
        return ddp::contract::exit_usage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ddp-doctor: %s\n", error.what());
        return ddp::contract::exit_error;
    }
}
