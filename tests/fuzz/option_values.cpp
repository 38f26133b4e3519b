// The values of ddp-launch's options, in files and variables too, and the words of its command
// line. Input: words with a zero after each; the first may name an option.
#include "launcher/options/option_values.hpp"
#include "fuzz/seeds.hpp"
#include "launcher/console/line_prefix.hpp"
#include "launcher/options/option_table.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/split_arguments.hpp"

#include <ddp/error.hpp>

#include <cstdlib>

namespace {

using namespace ddp::launcher;

std::vector<std::string> words_of(ddp::fuzz::Input input) {
    std::vector<std::string> words(1);
    while (!input.is_empty()) {
        const char letter = static_cast<char>(input.byte());
        if (letter == '\0') {
            words.emplace_back();
        } else {
            words.back() += letter;
        }
    }
    return words;
}

void require(bool right) {
    if (!right) std::abort();
}

// What a value was taken for lies within its bounds.
void check(const Options& options) {
    require(options.nproc_per_node.number >= 1 && options.nproc_per_node.number <= max_workers);
    for (const Wrap& wrap : options.program.wraps) {
        require(!wrap.command.empty());
        for (const int rank : wrap.local_ranks) require(rank >= 0 && rank < max_workers);
    }
    for (const auto* const streams : {&options.logs.redirects, &options.logs.tee}) {
        for (const auto& [rank, which] : streams->listed) {
            require(rank >= 0 && rank < max_workers && which <= Streams::both);
        }
    }
    require(options.stop.shutdown_timeout.count() >= 0 && options.restart.delay.count() >= 0);
    for (const int signal : options.stop.signals_to_handle) require(signal > 0 && signal < NSIG);
}

// As parse_options() does with what split_arguments() gives.
void apply(Options& options, const std::string& option) {
    const std::size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    const OptionSpec& spec = find_option(name, std::string_view(name).substr(2));
    if (spec.apply == nullptr) return;
    const std::string value = equals == option.npos ? "1" : option.substr(equals + 1);
    spec.apply(options, {name, value});
}

void read(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    const SplitArguments split = split_arguments(arguments);
    require(split.command.size() <= words.size());
    Options options;
    for (const std::string& option : split.options) apply(options, option);
    check(options);
    expand_prefix(options.display.line_prefix_template, {"trainer", 3, 1, "host", 4711});
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    std::vector<std::string> all;
    for (const OptionSpec& spec : option_table()) {
        const std::string name = std::string("--") + spec.name;
        if (spec.is_flag()) {
            all.push_back(name);
            continue;
        }
        for (const char* const value :
             {spec.initial, "1", "0,4-6", "0:3,12:1", "1:gdb --args 'a b' \"c\\\"d\"",
              "all:valgrind", "SIGTERM,USR1", "0.25", "gpu", "1:1", "join_timeout=60,is_host=1",
              "[${role_name}${rank}]: $$ ${pid}", "localhost:29500"}) {
            all.push_back(name + "=" + value);
        }
    }
    all.push_back(
        std::string("-n\0"
                    "4\0-r3\0-t\0"
                    "0:1\0--\0python\0train.py\0",
                    33));
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        read(words_of({data, size}));
    } catch (const ddp::UsageError&) {
        return 0;
    }
    return 0;
}
