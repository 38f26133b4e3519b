#include "launcher/metrics/metrics_text.hpp"

#include "base/net/socket.hpp"

#include <ddp/version.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>

namespace ddp::launcher {
namespace {

template <class Duration>
double in_seconds(Duration time) {
    return std::chrono::duration<double>(time).count();
}

// The fewest digits that give it back.
std::string in_digits(double value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    return {text.data(), end};
}

std::string in_quotes(std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
        if (c == '\n') {
            text += "\\n";
            continue;
        }
        if (c == '"' || c == '\\') text += '\\';
        text += c;
    }
    return text + "\"";
}

enum class Type : std::uint8_t { gauge, counter, info };

class Page {
public:
    explicit Page(MetricsFormat format) : format_(format) {}

    // What samples come after it; a counter's and an info's name without their ending.
    void begin(Type type, const std::string& name, std::string_view help) {
        constexpr std::array endings{"", "_total", "_info"};
        sample_ = name + endings[static_cast<std::size_t>(type)];
        const bool is_open = format_ == MetricsFormat::openmetrics;
        const std::string& family = is_open ? name : sample_;
        const char* const words = type == Type::counter           ? "counter"
                                  : type == Type::info && is_open ? "info"
                                                                  : "gauge";
        text_ += "# HELP " + family + " " + std::string(help) + "\n";
        text_ += "# TYPE " + family + " " + words + "\n";
    }
    void add(const std::string& labels, double value) {
        text_ +=
            sample_ + (labels.empty() ? "" : "{" + labels + "}") + " " + in_digits(value) + "\n";
    }
    std::string end() && {
        if (format_ == MetricsFormat::openmetrics) text_ += "# EOF\n";
        return std::move(text_);
    }

private:
    MetricsFormat format_;
    std::string sample_;
    std::string text_;
};

using ValueOf = std::function<std::optional<double>(const RankRow&)>;

// Of each rank of which it is known.
void add_of_ranks(Page& page, const RunView& view, Type type, const std::string& name,
                  std::string_view help, const ValueOf& value_of) {
    page.begin(type, name, help);
    for (const RankRow& row : view.ranks) {
        const auto value = value_of(row);
        if (value) page.add("rank=" + in_quotes(std::to_string(row.rank)), *value);
    }
}

void add_ranks(Page& page, const RunView& view, bool is_judged) {
    const auto add = [&](Type type, const std::string& name, std::string_view help,
                         const ValueOf& value_of) {
        add_of_ranks(page, view, type, "ddp_rank_" + name, help, value_of);
    };
    add(Type::gauge, "up", "Whether the rank's worker runs.",
        [](const RankRow& row) { return row.ended ? 0 : 1; });
    add(Type::gauge, "step", "The last step that the rank has published.",
        [](const RankRow& row) { return static_cast<double>(row.progress.step); });
    add(Type::gauge, "steps_per_second", "The rate that the rank has published; 0: none.",
        [](const RankRow& row) { return row.progress.steps_per_second; });
    add(Type::gauge, "heartbeat_age_seconds",
        "Time since the rank has begun the collective that it is in, or ended its last.",
        [](const RankRow& row) {
            return row.since_call ? std::optional(in_seconds(*row.since_call)) : std::nullopt;
        });
    add(Type::gauge, "in_calls_ratio",
        "The part of the time, of its last calls, that the rank has spent in collectives.",
        [](const RankRow& row) { return row.share_in_calls; });
    add(Type::counter, "collective_bytes", "Bytes that collectives were called with on the rank.",
        [](const RankRow& row) { return static_cast<double>(row.progress.bytes); });
    add(Type::counter, "exposed_communication_seconds",
        "Time that the rank's steps have waited for averaged gradients.",
        [](const RankRow& row) { return in_seconds(row.progress.exposed); });
    add(Type::counter, "cpu_seconds", "CPU time of the rank's process.", [](const RankRow& row) {
        return row.use.cpu_time ? std::optional(in_seconds(*row.use.cpu_time)) : std::nullopt;
    });
    add(Type::gauge, "resident_memory_bytes", "Memory of the rank's process in the host's.",
        [](const RankRow& row) {
            return row.use.resident_bytes
                       ? std::optional(static_cast<double>(*row.use.resident_bytes))
                       : std::nullopt;
        });
    const auto names = [](const std::vector<int>& ranks, int rank) {
        return std::ranges::find(ranks, rank) == ranks.end() ? 0 : 1;
    };
    if (!is_judged) return;
    add(Type::gauge, "slows_down_job", "1: others wait for the rank again and again.",
        [&](const RankRow& row) { return view.slow ? names(view.slow->ranks, row.rank) : 0; });
    add(Type::gauge, "holds_up_job", "1: others wait for the rank in a call that does not end.",
        [&](const RankRow& row) { return view.hang ? names(view.hang->ranks, row.rank) : 0; });
}

}  // namespace

const char* content_type(MetricsFormat format) noexcept {
    return format == MetricsFormat::openmetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics_text(const RunFacts& facts, const RunView& view, MetricsFormat format) {
    Page page(format);
    page.begin(Type::info, "ddp_job", "The job whose ranks of this host these are.");
    page.add("host=" + in_quotes(base::host_name()) +
                 ",launcher_pid=" + in_quotes(std::to_string(facts.launcher_pid)) +
                 ",version=" + in_quotes(DDP_VERSION),
             1);
    const auto add = [&](Type type, const std::string& name, std::string_view help, double value) {
        page.begin(type, "ddp_job_" + name, help);
        page.add("", value);
    };
    add(Type::gauge, "start_time_seconds", "When the launcher began, since 1970.",
        in_seconds(facts.started.time_since_epoch()));
    if (view.world_size > 0) {  // else nothing has been started yet
        add(Type::gauge, "world_size", "Ranks of the whole job.", view.world_size);
    }
    add(Type::counter, "restarts", "Starts of the workers after the first.", view.attempt - 1);
    const bool is_judged = facts.is_judged && view.is_judged;
    if (is_judged) {
        add(Type::gauge, "hang", "1: some ranks wait for others for too long, or cannot run.",
            view.hang ? 1 : 0);
    }
    add_ranks(page, view, is_judged);
    return std::move(page).end();
}

}  // namespace ddp::launcher
