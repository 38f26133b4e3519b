// Each printed line goes out in one piece, so that lines of several ranks do not mix. Bad options
// are exceptions: run_worker prints them and makes the exit code.
#include "nn/digits_program.hpp"

#include <ddp/error.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace nn {

namespace {

constexpr std::size_t default_batch = 64;  // a rank

constexpr const char* help =
    "Usage: 03_train_digits [options]\n"
    "Trains a small network on handwritten digits, alone or on all ranks that ddp-launch started.\n"
    "  --data DIR         folder of digits.csv.gz (default: data/ beside this program)\n"
    "  --epochs N         passes over the training data (default: 30)\n"
    "  --global-batch N   samples in a step of all ranks together (default: 64 a rank)\n"
    "  --logical-ranks N  train as N ranks do, on any number of ranks that N is 1, 2, 4, ... "
    "times\n"
    "                     of: the same bits on each (default: the number of ranks)\n"
    "  --checkpoint DIR   save after each epoch and go on from there (default: no checkpoints)\n"
    "  --device NAME      cpu (default), or cuda: each rank's GPU\n"
    "  --help             this text\n";

[[noreturn]] void refuse(const std::string& what) {
    throw ddp::UsageError("03_train_digits: " + what + "; --help lists the options");
}

// A whole number from 1 to the largest T.
template <class T>
T parse_count(std::string_view option, std::string_view text) {
    T number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number < 1) {
        refuse(std::string(option) + " needs a whole number of at least 1, not '" +
               std::string(text) + "'");
    }
    return number;
}

void set_option(TrainOptions& options, std::string_view option, std::string_view value) {
    if (option == "--data") {
        options.data = value;
    } else if (option == "--epochs") {
        options.epochs = parse_count<int>(option, value);
    } else if (option == "--global-batch") {
        options.global_batch = parse_count<std::size_t>(option, value);
    } else if (option == "--logical-ranks") {
        options.logical_ranks = parse_count<std::size_t>(option, value);
    } else if (option == "--device") {
        if (value != "cpu" && value != "cuda") {
            refuse("--device is cpu or cuda, not '" + std::string(value) + "'");
        }
        options.on_gpu = value == "cuda";
    } else {
        options.checkpoint_dir = value;
    }
}

bool is_known(std::string_view option) {
    for (const char* known :
         {"--data", "--epochs", "--global-batch", "--logical-ranks", "--checkpoint", "--device"}) {
        if (option == known) return true;
    }
    return false;
}

std::string rank_of_size(const ddp::ProcessGroup& group) {
    return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size());
}

}  // namespace

std::size_t TrainOptions::batch_size(const ddp::ProcessGroup& group) const {
    if (global_batch == 0) return default_batch;
    const auto ranks = logical_ranks > 0 ? logical_ranks : static_cast<std::size_t>(group.size());
    if (global_batch % ranks != 0) {
        refuse("--global-batch " + std::to_string(global_batch) + " cannot be divided among " +
               std::to_string(ranks) + " ranks");
    }
    return global_batch / ranks;
}

TrainOptions parse_options(int argc, char** argv) {
    TrainOptions options;
    options.data = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "data";
    for (int i = 1; i < argc; ++i) {
        std::string_view option = argv[i];
        if (option == "--help") {
            std::fputs(help, stdout);
            std::exit(EXIT_SUCCESS);
        }
        const std::size_t equals = option.find('=');
        std::string_view value;
        if (equals != std::string_view::npos) {
            value = option.substr(equals + 1);
            option = option.substr(0, equals);
        }
        if (!is_known(option)) refuse("unknown option '" + std::string(argv[i]) + "'");
        if (equals == std::string_view::npos && i + 1 < argc) value = argv[++i];
        if (value.empty()) refuse(std::string(option) + " needs a value");
        set_option(options, option, value);
    }
    return options;
}

void report(const ddp::ProcessGroup& group, int epoch, double loss) {
    if (group.rank() != 0) return;
    // Six digits, not four: curves of different numbers of ranks are compared to 1e-4.
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "epoch %d loss %#.6g\n", epoch, loss);
    std::fputs(line.data(), stderr);
}

void report_start(const ddp::ProcessGroup& group, int epoch, const TrainOptions& options) {
    if (group.rank() != 0 || epoch < options.epochs) return;
    const std::string line = "nothing to do: epoch " + std::to_string(epoch) + " of " +
                             std::to_string(options.epochs) + " in " +
                             options.checkpoint_dir.string() + "\n";
    std::fputs(line.c_str(), stderr);
}

void print_result(const ddp::ProcessGroup& group, double accuracy, std::uint64_t weights) {
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), "%s: accuracy %.4f weights %016llx\n",
                  rank_of_size(group).c_str(), accuracy, static_cast<unsigned long long>(weights));
    std::fputs(line.data(), stdout);
    std::fflush(stdout);
}

}  // namespace nn
