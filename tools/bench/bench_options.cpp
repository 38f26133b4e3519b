// The option table is the one source: parsing and the help text both read it.
#include "bench/bench_options.hpp"

#include <ddp/error.hpp>

#include <boost/program_options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <sstream>

namespace ddp::bench {
namespace {

namespace po = boost::program_options;

struct OptionSpec {
    const char* name;   // in dashes
    const char* value;  // what the help calls its value; null: a flag
    const char* description;
};

constexpr std::array option_table{
    OptionSpec{"backend", "NAME", "automatic, shm, gloo, hierarchical or nccl (default automatic)"},
    OptionSpec{"dtype", "NAME", "float32 (default), float64, float16, bfloat16, int8, ..., bool"},
    OptionSpec{"op", "NAME", "sum (default), avg, min, max, product, bit_and, ..., premul_sum"},
    OptionSpec{"root", "RANK", "of reduce, broadcast, gather and scatter (default 0)"},
    OptionSpec{
        "path", "user|shared|adopted",
        "user: any memory (default); shared: of group.allocate(); adopted: of the user's, by "
        "group.adopt()"},
    OptionSpec{"device", "NAME", "auto (default: the group's GPU, else the CPU), cpu or cuda"},
    OptionSpec{"min-bytes", "SIZE", "the first row (default 4); sizes may end in K, M or G"},
    OptionSpec{"max-bytes", "SIZE", "the last row at most (default 256M)"},
    OptionSpec{"factor", "N", "between rows, 2 or more (default 4)"},
    OptionSpec{"iters", "N|auto", "timed iterations a row; auto: what fits the budget (default)"},
    OptionSpec{"warmup", "N", "iterations before (default: 5; 2 from 16M on)"},
    OptionSpec{"budget", "SECONDS", "of --iters auto, for one row (default 0.3)"},
    OptionSpec{"check", nullptr, "count wrong elements (default); exit code 1 if there are any"},
    OptionSpec{"no-check", nullptr, "do not"},
    OptionSpec{"floor", nullptr, "measure the host too; print each row as a share of its floor"},
    OptionSpec{"json", "FILE", "write one JSON object a row, a line each"},
    OptionSpec{"plot", "FILE.svg", "draw bandwidth and time against the size"},
    OptionSpec{
        "tune", "FILE",
        "instead of a collective: find the best switch points of shm for so many ranks here, "
        "which takes minutes, and write them into FILE beside its other rows; "
        "DDP_SHM_TUNING=@FILE takes them. With --max-bytes and --budget alone"},
    OptionSpec{"help", nullptr, "show this text"},
    OptionSpec{"version", nullptr, "show the version"},
};

[[noreturn]] void fail_value(const std::string& option, const std::string& value,
                             const std::string& allowed) {
    throw UsageError(option + ": \"" + value + "\" is not " + allowed);
}

template <class T>
T parse_number(const std::string& option, const std::string& value, T low, T high) {
    T number{};
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc{} || stop != end || !(number >= low && number <= high)) {
        std::ostringstream allowed;
        allowed << "a number from " << low << " to " << high;
        fail_value(option, value, allowed.str());
    }
    return number;
}

std::size_t parse_size(const std::string& option, const std::string& value) {
    constexpr std::string_view units = "KMG";
    std::string digits = value;
    unsigned shift = 0;
    if (!value.empty() && units.find(value.back()) != units.npos) {
        shift = 10 * (static_cast<unsigned>(units.find(value.back())) + 1);
        digits.pop_back();
    }
    std::size_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc{} || stop != end || number > (std::size_t{1} << 40 >> shift)) {
        fail_value(option, value, "a size up to 1024G, such as 4, 32K or 256M");
    }
    return number << shift;
}

// The one of `all` that to_string calls so.
template <class T, std::size_t N>
T parse_name(const std::string& option, const std::string& value, const std::array<T, N>& all) {
    std::string allowed = "one of";
    for (const T item : all) {
        if (value == to_string(item)) return item;
        allowed += std::string(" ") + to_string(item);
    }
    fail_value(option, value, allowed);
}

constexpr std::array backends{Backend::automatic, Backend::shm, Backend::gloo,
                              Backend::hierarchical, Backend::nccl};
constexpr std::array paths{Path::user, Path::shared, Path::adopted};
constexpr std::array places{Where::of_the_group, Where::cpu, Where::cuda};
constexpr std::array dtypes{DType::float32, DType::float64, DType::int32,    DType::int64,
                            DType::uint8,   DType::float16, DType::bfloat16, DType::int8,
                            DType::int16,   DType::boolean};
constexpr std::array ops{ReduceOp{ReduceOp::sum}, ReduceOp{ReduceOp::avg}, ReduceOp{ReduceOp::min},
                         ReduceOp{ReduceOp::max}, ReduceOp{ReduceOp::product},
                         ReduceOp{ReduceOp::bit_and}, ReduceOp{ReduceOp::bit_or},
                         ReduceOp{ReduceOp::bit_xor},
                         // A power of two, so that the products are exact.
                         ReduceOp::make_premul_sum(0.5)};

constexpr int most = 1'000'000;

void apply_sizes(Options& options, const std::string& name, const std::string& value) {
    const std::string option = "--" + name;
    if (name == "min-bytes") options.min_bytes = parse_size(option, value);
    if (name == "max-bytes") options.max_bytes = parse_size(option, value);
    if (name == "factor") options.factor = parse_number<std::size_t>(option, value, 2, 1 << 20);
    if (name == "iters") {
        options.plan.iterations = value == "auto" ? 0 : parse_number(option, value, 1, most);
    }
    if (name == "warmup") options.plan.warmup = parse_number(option, value, 1, most);
    if (name == "budget") options.plan.budget_s = parse_number(option, value, 0.001, 3600.0);
}

// The last one of repeated options counts.
void apply(Options& options, const std::string& name, const std::string& value) {
    const std::string option = "--" + name;
    if (name == "backend") options.backend = parse_name(option, value, backends);
    if (name == "dtype") options.dtype = parse_name(option, value, dtypes);
    if (name == "op") options.op = parse_name(option, value, ops);
    if (name == "root") options.root = parse_number(option, value, 0, most);
    if (name == "path") options.path = parse_name(option, value, paths);
    if (name == "device") options.where = parse_name(option, value, places);
    if (name == "check") options.check = true;
    if (name == "no-check") options.check = false;
    if (name == "floor") options.floor = true;
    if (name == "json") options.json = value;
    if (name == "plot") options.plot = value;
    if (name == "tune") {
        if (value.empty()) fail_value(option, value, "a file");
        options.tune = value;
    }
    if (name == "version" && options.action == Action::run) options.action = Action::version;
    if (name == "help") options.action = Action::help;
    apply_sizes(options, name, value);
}

po::options_description describe_options() {
    po::options_description description("options", 100);
    for (const OptionSpec& spec : option_table) {
        if (spec.value != nullptr) {
            auto* semantic = po::value<std::string>();
            semantic->value_name(spec.value);
            description.add_options()(spec.name, semantic, spec.description);
        } else {
            description.add_options()(spec.name, spec.description);
        }
    }
    return description;
}

std::string names_of_kinds() {
    std::string names;
    for (const KindInfo& info : kinds)
        names += (names.empty() ? "" : ", ") + std::string(info.name);
    return names;
}

// Underscores do for dashes in the names of options, not in their values.
std::vector<std::string> words_of(std::span<char* const> arguments) {
    std::vector<std::string> words(arguments.begin(), arguments.end());
    for (std::string& word : words) {
        if (!word.starts_with("--")) continue;
        const auto end = std::find(word.begin(), word.end(), '=');
        std::replace(word.begin(), end, '_', '-');
    }
    return words;
}

// `names` are of collectives, `given` of options.
void check_tune(const std::vector<std::string>& names, const std::vector<std::string>& given) {
    if (!names.empty()) {
        throw UsageError("--tune measures several collectives; leave out " + names.front());
    }
    constexpr std::array allowed{"tune", "max-bytes", "budget"};
    for (const std::string& name : given) {
        if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
            throw UsageError("--tune takes --max-bytes and --budget alone; leave out --" + name);
        }
    }
}

void check_options(const Options& options, const std::vector<std::string>& names) {
    if (options.action != Action::run) return;
    if (names.size() != 1) {
        throw UsageError(names.empty() ? "no collective given; it is one of " + names_of_kinds()
                                       : "more than one collective: " + names[0] + ", " + names[1]);
    }
    if (!find_kind(names.front())) {
        throw UsageError("\"" + names.front() + "\" is not a collective; it is one of " +
                         names_of_kinds());
    }
    if (options.min_bytes > options.max_bytes) {
        throw UsageError("--min-bytes is more than --max-bytes");
    }
    if (info_of(options.kind).reduces && !is_defined(options.op, options.dtype)) {
        throw UsageError(std::string("--op: ") + to_string(options.op) + " is not defined on " +
                         to_string(options.dtype));
    }
}

}  // namespace

const char* to_string(Path path) noexcept {
    switch (path) {
        case Path::user:
            return "user";
        case Path::shared:
            return "shared";
        case Path::adopted:
            return "adopted";
    }
    return "unknown";
}

const char* to_string(Where where) noexcept {
    switch (where) {
        case Where::of_the_group:
            return "auto";
        case Where::cpu:
            return "cpu";
        case Where::cuda:
            return "cuda";
    }
    return "?";
}

Options parse_options(std::span<char* const> arguments) {
    Options options;
    std::vector<std::string> names, given;
    try {
        po::options_description description = describe_options();
        description.add_options()("collective", po::value<std::string>(), "");
        po::positional_options_description positional;
        positional.add("collective", -1);
        using Style = po::command_line_style::style_t;
        const auto parsed =
            po::command_line_parser(words_of(arguments))
                .options(description)
                .positional(positional)
                .style(Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next)
                .run();
        for (const auto& option : parsed.options) {
            const std::string value = option.value.empty() ? "" : option.value.front();
            if (option.position_key >= 0) {
                names.push_back(value);
            } else {
                apply(options, option.string_key, value);
                given.push_back(option.string_key);
            }
        }
    } catch (const po::error& error) {
        throw UsageError(std::string(error.what()) + "; --help lists the options");
    }
    if (options.action == Action::run && !options.tune.empty()) {
        check_tune(names, given);
        options.action = Action::tune;
    }
    if (!names.empty()) options.kind = find_kind(names.front()).value_or(options.kind);
    check_options(options, names);
    return options;
}

std::string help_text() {
    std::ostringstream text;
    text
        << "Measures one collective over a range of sizes, as nccl-tests does.\n"
           "\n"
           "usage: ddp-launch --nproc-per-node=N ddp-bench COLLECTIVE [options]\n"
           "       ddp-launch --nproc-per-node=N ddp-bench --tune FILE\n"
           "\n"
           "COLLECTIVE: "
        << names_of_kinds() << "\n\n"
        << describe_options()
        << "\n"
           "Bytes are of the whole tensor, for gather and the like of all parts together; busbw\n"
           "as nccl-tests defines it; GB are 1e9 bytes. Every rank rewrites its input before each\n"
           "timed call; the time is the mean over ranks, then the median over iterations.\n";
    return text.str();
}

std::vector<std::size_t> sizes_of(const Options& options) {
    if (options.kind == Kind::barrier) return {0};
    std::vector<std::size_t> sizes;
    for (std::size_t size = options.min_bytes; size <= options.max_bytes;) {
        sizes.push_back(size);
        size = size == 0 ? size_of(options.dtype) : size * options.factor;
    }
    return sizes;
}

}  // namespace ddp::bench
