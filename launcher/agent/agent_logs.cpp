#include "launcher/agent/agent_logs.hpp"

#include "base/log.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace ddp::launcher {

void AgentLogs::start(const Options& options) {
    if (!tree_.wanted()) return;
    writer_.start(tree_, options);
    base::log_debug("launcher", "log files go to " + tree_.root() + ", written by pid " +
                                    std::to_string(writer_.pid()));
}

void AgentLogs::await() { writer_.await(wait_, stop_.is_hurried); }

void AgentLogs::await_files() {
    const std::uint64_t asked = writer_.asked();
    while (!writer_.completed(asked) && !writer_.unresponsive() && !stop_.signal &&
           channel_.open()) {
        wait_(std::nullopt);
    }
    if (const std::string why = writer_.take_open_problem(); !why.empty()) throw Error(why);
}

// Whoever waits for the launcher to end waits for these, too.
void AgentLogs::write_timeline() {
    if (!channel_.open()) return;
    const auto most_time = [this]() -> std::chrono::milliseconds {
        if (stop_.is_hurried || !channel_.open()) return std::chrono::seconds{2};
        return stop_.signal ? std::chrono::seconds{5} : std::chrono::seconds{60};
    };
    for (std::string& text : timeline_.write(wait_, most_time)) {
        channel_.send(NoticeMessage{std::move(text)});
    }
}

void AgentLogs::finish() {
    await_flight();  // of a signal that came late
    write_timeline();
    if (!writer_.started()) return;
    std::string text = writer_.finish(wait_, stop_.is_hurried);
    say_news();
    if (!text.empty()) channel_.send(NoticeMessage{std::move(text)});
}

void AgentLogs::say_news() {
    std::string news = writer_.take_news();
    if (workers_started_) {
        const std::string late = writer_.take_open_problem();
        if (!late.empty()) news += (news.empty() ? "" : "\n") + late + "; lines are missing there";
    }
    if (!news.empty()) channel_.send(NoticeMessage{std::move(news)});
    if (auto flight = flight_.look()) channel_.send(NoticeMessage{*std::move(flight)});
}

std::optional<LogWriter::Time> AgentLogs::next_due() const {
    const auto of_flight = flight_.next();
    const auto of_logs = writer_.next_due();
    if (!of_flight || !of_logs) return of_flight ? of_flight : of_logs;
    return std::min(*of_flight, *of_logs);
}

void AgentLogs::note_end(int attempt, const WatchedWorkers& workers, const std::string& text) {
    timeline_.note(attempt, workers.pages, workers.all, workers.first_rank, text);
}

void AgentLogs::record_flight(const WatchedWorkers& workers, const std::string& why,
                              std::chrono::milliseconds limit) {
    if (flight_.wanted() && flight_.is_busy()) {
        channel_.send(
            NoticeMessage{"no flight records " + why + ": those before are still being written"});
    }
    flight_.begin(workers.pages, workers.all, workers.first_rank, workers.world_size, why, limit);
}

bool AgentLogs::record_flight_on(int signal, const WatchedWorkers& workers) {
    if (!flight_.is_asked_by(signal)) return false;
    record_flight(workers, "on " + signal_name(signal));
    return true;
}

void AgentLogs::record_flight_of_end(const WatchedWorkers& workers) {
    await_flight();
    record_flight(workers, "at the end", FlightFiles::most_time_at_end);
    await_flight();
}

// Of the loop, which tells what has become of it.
void AgentLogs::await_flight() {
    while (flight_.is_busy() && channel_.open()) {
        if (stop_.signal) flight_.shorten(FlightFiles::most_time_at_end);
        if (stop_.is_hurried) flight_.shorten(std::chrono::seconds{2});
        wait_(flight_.next());
    }
}

void AgentLogs::publish(Outcome& outcome) {
    timeline_.set_report(outcome.json);
    if (tree_.wanted() && !outcome.json.empty()) {
        writer_.write_report(std::move(outcome.json));
        await();
        say_news();
    }
    launcher::publish(outcome);
}

}  // namespace ddp::launcher
